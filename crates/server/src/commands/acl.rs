//! `ACL`: users, and what they may do.

use crate::acl::catalogue::CATEGORIES;
use crate::acl::denials::Denial;
use crate::acl::modifiers::{channels, digits, flags, keys};
use crate::acl::selector::{Channel, Selector};
use crate::acl::user::User;
use crate::acl::users::DEFAULT;
use crate::commands::arguments::{Arguments, integer};
use crate::commands::command::flags::{ADMIN, LOADING, NOSCRIPT, STALE};
use crate::commands::command::{Command, Context, Family, container, unknown_form};
use crate::commands::permission;
use crate::keyspace::failure::{Failure, Outcome};
use crate::state::channels::Topic;
use crate::text::shown::{short, up_to_zero};
use forebay_env::Random;
use std::fmt::Write;

const FAMILY: Family = Family::Server;
const SEEN: u32 = NOSCRIPT | LOADING | STALE;
const CONTROL: u32 = ADMIN | SEEN;

/// The commands of this module.
pub const COMMANDS: &[Command] = &[Command::alone(FAMILY, "acl", -2, 0, container)
    .doc("6.0.0", "A container for Access List Control commands.")
    .subcommands(&[
        Command::alone(FAMILY, "acl|cat", -2, SEEN, cat).doc("6.0.0", "Lists the categories, or the commands of one."),
        Command::alone(FAMILY, "acl|deluser", -3, CONTROL, delete)
            .doc("6.0.0", "Deletes users, and ends what they do."),
        Command::alone(FAMILY, "acl|dryrun", -4, CONTROL, dry_run)
            .doc("7.0.0", "Says whether a user may do something, without doing it."),
        Command::alone(FAMILY, "acl|genpass", -2, SEEN, generate).doc("6.0.0", "Returns a random password."),
        Command::alone(FAMILY, "acl|getuser", 3, CONTROL, get).doc("6.0.0", "Returns what a user may do."),
        Command::alone(FAMILY, "acl|help", 2, LOADING | STALE, help).doc("6.0.0", "Returns help."),
        Command::alone(FAMILY, "acl|list", 2, CONTROL, list).doc("6.0.0", "Lists the users with what they may do."),
        Command::alone(FAMILY, "acl|load", 2, CONTROL, load).doc("6.0.0", "Reads the file of users."),
        Command::alone(FAMILY, "acl|log", -2, CONTROL, log).doc("6.0.0", "Lists what was denied lately."),
        Command::alone(FAMILY, "acl|save", 2, CONTROL, save).doc("6.0.0", "Writes the file of users."),
        Command::alone(FAMILY, "acl|setuser", -3, CONTROL, set).doc("6.0.0", "Changes a user or adds one."),
        Command::alone(FAMILY, "acl|users", 2, CONTROL, users).doc("6.0.0", "Lists the names of users."),
        Command::alone(FAMILY, "acl|whoami", 2, SEEN, whoami).doc("6.0.0", "Returns the user of the connection."),
    ])];

fn help(cx: &mut Context<'_, '_>, _: Arguments<'_>) -> Outcome {
    const LINES: &[&str] = &[
        "ACL <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "CAT [<category>], DELUSER <username> ..., DRYRUN <username> <command> [<arg> ...], GENPASS [<bits>]",
        "GETUSER <username>, LIST, LOAD, LOG [<count> | RESET], SAVE, SETUSER <username> <attribute> ..., USERS, WHOAMI",
        "HELP",
        "    Print this help.",
    ];
    cx.out.lines(LINES);
    Ok(())
}

fn cat(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let catalogue = cx.shared.users.catalogue();
    let names: Vec<&str> = match arguments.len() {
        2 => CATEGORIES.to_vec(),
        3 => {
            let name = String::from_utf8_lossy(arguments.at(2)).to_ascii_lowercase();
            let numbers = catalogue
                .category(&name)
                .ok_or_else(|| Failure::new(format!("ERR Unknown category '{}'", short(arguments.at(2), 128))))?;
            catalogue.names(numbers).collect()
        }
        _ => return Err(unknown_form(arguments)),
    };
    cx.out.array(names.len());
    names.iter().for_each(|name| cx.out.bulk(name));
    Ok(())
}

fn list(cx: &mut Context<'_, '_>, _: Arguments<'_>) -> Outcome {
    let lines = cx.shared.users.lines();
    cx.out.array(lines.len());
    lines.iter().for_each(|line| cx.out.bulk(line));
    Ok(())
}

fn users(cx: &mut Context<'_, '_>, _: Arguments<'_>) -> Outcome {
    let users = cx.shared.users.all();
    cx.out.array(users.len());
    users.iter().for_each(|user| cx.out.bulk(user.name()));
    Ok(())
}

fn whoami(cx: &mut Context<'_, '_>, _: Arguments<'_>) -> Outcome {
    let name = cx.session.user.as_ref().map(|user| user.name().clone());
    cx.out.bulk_or_null(name);
    Ok(())
}

fn get(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let Some(user) = cx.shared.users.find(arguments.at(2)) else {
        cx.out.null();
        return Ok(());
    };
    let rules = user.rules();
    cx.out.map(6);
    cx.out.bulk("flags");
    let flags = flags(&rules);
    cx.out.set(flags.len());
    flags.iter().for_each(|flag| cx.out.bulk(flag));
    cx.out.bulk("passwords");
    cx.out.array(rules.passwords.len());
    rules.passwords.iter().for_each(|password| cx.out.bulk(digits(password)));
    selector(cx, &rules.root);
    cx.out.bulk("selectors");
    cx.out.array(rules.selectors.len());
    for other in &rules.selectors {
        cx.out.map(3);
        selector(cx, other);
    }
    Ok(())
}

fn selector(cx: &mut Context<'_, '_>, selector: &Selector) {
    cx.out.bulk("commands");
    cx.out.bulk(selector.words.join(" "));
    cx.out.bulk("keys");
    cx.out.bulk(keys(selector));
    cx.out.bulk("channels");
    cx.out.bulk(channels(selector));
}

fn set(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let set = cx.shared.users.set(arguments.at(2), arguments.from(3));
    let user = set.map_err(|why| Failure::new(format!("ERR {why}")))?;
    end_subscribers(cx, &user);
    cx.out.ok();
    Ok(())
}

/// Ends the connections of a user that have subscribed to channels that it may no longer use.
fn end_subscribers(cx: &mut Context<'_, '_>, user: &User) {
    let rules = user.rules();
    for client in cx.shared.clients.all() {
        let described = client.described();
        if described.user != user.name() || described.subscriptions == (0, 0, 0) {
            continue;
        }
        let may_stay = cx.shared.channels.of_client(client.id).iter().all(|(topic, name)| {
            let channel = Channel { name, is_pattern: *topic == Topic::Pattern };
            std::iter::once(&rules.root).chain(&rules.selectors).any(|selector| selector.allows_channel(&channel))
        });
        if !may_stay {
            cx.shared.end(&client);
        }
    }
}

/// Ends the connections of a user that no longer exists.
fn end_connections(cx: &mut Context<'_, '_>, user: &User) {
    for client in cx.shared.clients.all() {
        if client.described().user != user.name() {
            continue;
        }
        if client.id == cx.session.client.id {
            cx.session.is_closing = true;
        } else {
            cx.shared.end(&client);
        }
    }
}

fn delete(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    if arguments.from(2).contains(&DEFAULT) {
        return Err(Failure::text("ERR The 'default' user cannot be removed"));
    }
    let mut deleted = 0;
    for name in arguments.from(2) {
        if let Some(user) = cx.shared.users.remove(name) {
            end_connections(cx, &user);
            deleted += 1;
        }
    }
    cx.out.integer(deleted);
    Ok(())
}

fn has_file(cx: &Context<'_, '_>) -> Outcome {
    if cx.shared.users.has_file() {
        return Ok(());
    }
    Err(Failure::text(
        "ERR This Redis instance is not configured to use an ACL file. You may want to specify users via the ACL SETUSER \
         command and then issue a CONFIG REWRITE (assuming you have a Redis configuration file set) in order to store \
         users in the Redis configuration.",
    ))
}

fn load(cx: &mut Context<'_, '_>, _: Arguments<'_>) -> Outcome {
    has_file(cx)?;
    let gone = cx.shared.users.load().map_err(|why| Failure::new(format!("ERR {why}")))?;
    gone.iter().for_each(|user| end_connections(cx, user));
    cx.shared.users.all().iter().for_each(|user| end_subscribers(cx, user));
    cx.out.ok();
    Ok(())
}

fn save(cx: &mut Context<'_, '_>, _: Arguments<'_>) -> Outcome {
    has_file(cx)?;
    cx.shared.users.save().map_err(|error| {
        tracing::warn!(%error, "writing the file of users");
        Failure::text(
            "ERR There was an error trying to save the ACLs. Please check the server logs for more information",
        )
    })?;
    cx.out.ok();
    Ok(())
}

fn generate(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let bits = match arguments.len() {
        2 => 256,
        3 => integer(arguments.at(2))?,
        _ => return Err(unknown_form(arguments)),
    };
    let bits = usize::try_from(bits).ok().filter(|bits| (1..=4096).contains(bits)).ok_or(Failure::text(
        "ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to 4096",
    ))?;
    let mut password = String::new();
    while password.len() < bits.div_ceil(4) {
        let word = Random::secret().map_err(|error| Failure::new(format!("ERR randomness: {error}")))?;
        let _ = write!(password, "{word:032x}");
    }
    password.truncate(bits.div_ceil(4));
    cx.out.bulk(password);
    Ok(())
}

fn log(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let count = match arguments.len() {
        2 => 10,
        3 if arguments.is(2, "RESET") => {
            cx.shared.users.denials.clear();
            cx.out.ok();
            return Ok(());
        }
        3 => usize::try_from(integer(arguments.at(2))?).unwrap_or(0),
        _ => return Err(unknown_form(arguments)),
    };
    let denials = cx.shared.users.denials.latest(count);
    let now_ms = cx.keys.now_ms();
    cx.out.array(denials.len());
    for Denial { count, reason, context, object, user, at_ms, client } in denials {
        cx.out.map(7);
        cx.out.bulk("count");
        cx.out.count(count);
        for (name, value) in [("reason", reason), ("context", context)] {
            cx.out.bulk(name);
            cx.out.bulk(value);
        }
        for (name, value) in [("object", &object), ("username", &user)] {
            cx.out.bulk(name);
            cx.out.bulk(value);
        }
        cx.out.bulk("age-seconds");
        cx.out.double(now_ms.saturating_sub(at_ms) as f64 / 1000.0);
        cx.out.bulk("client-info");
        cx.out.bulk(client);
    }
    Ok(())
}

fn dry_run(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let user = cx
        .shared
        .users
        .find(arguments.at(2))
        .ok_or_else(|| Failure::new(format!("ERR User '{}' not found", short(arguments.at(2), 128))))?;
    let request = Arguments::new(arguments.from(3));
    let command = cx.registry.resolve(request).map_err(|failure| {
        if failure.message().starts_with("ERR wrong number") {
            return failure;
        }
        Failure::new(format!("ERR Command '{}' not found", short(request.at(0), 128)))
    })?;
    match permission::check(&cx.shared.users, &user, command, request) {
        Ok(()) => cx.out.ok(),
        Err(denied) => cx.out.bulk(match denied.reason {
            "command" => format!("This user has no permissions to run the '{}' command", command.name).into_bytes(),
            reason => {
                let (object, reason) = (up_to_zero(denied.object), reason.as_bytes());
                [b"This user has no permissions to access the '", object, b"' ", reason].concat()
            }
        }),
    }
    Ok(())
}
