//! `CLIENT TRACKING` and its like: keys that a client caches, and whose changes it is told (`state::tracking`).

use crate::commands::arguments::{Arguments, integer};
use crate::commands::command::Context;
use crate::keyspace::failure::{Failure, Outcome};
use crate::state::tracking::{Mode, Tracked};
use crate::text::shown;
use bytes::Bytes;

const SWITCHED: &str = "before disabling tracking for this client, and then re-enabling it with a different mode.";

/// What a client asks for.
#[derive(Debug, Default)]
struct Asked<'a> {
    redirect: Option<u64>,
    is_broadcast: bool,
    opts_in: bool,
    opts_out: bool,
    skips_own: bool,
    prefixes: Vec<&'a [u8]>,
}

impl<'a> Asked<'a> {
    fn read(cx: &Context<'_, '_>, arguments: Arguments<'a>) -> Outcome<Self> {
        let (mut asked, mut words) = (Self::default(), arguments.words(3));
        while !words.is_done() {
            if let Some(id) = words.take_with_value("REDIRECT") {
                if asked.redirect.is_some() {
                    return Err(Failure::text("ERR A client can only redirect to a single other client"));
                }
                let id = u64::try_from(integer(id)?).ok().filter(|id| cx.shared.clients.get(*id).is_some());
                asked.redirect =
                    Some(id.ok_or(Failure::text("ERR The client ID you want redirect to does not exist"))?);
            } else if let Some(prefix) = words.take_with_value("PREFIX") {
                asked.prefixes.push(prefix);
            } else if words.take("BCAST") {
                asked.is_broadcast = true;
            } else if words.take("OPTIN") {
                asked.opts_in = true;
            } else if words.take("OPTOUT") {
                asked.opts_out = true;
            } else if words.take("NOLOOP") {
                asked.skips_own = true;
            } else {
                return Err(Failure::SYNTAX);
            }
        }
        Ok(asked)
    }

    /// Returns the mode, if it is compatible with what the client has now.
    fn mode(&self, now: Option<Mode>) -> Outcome<Mode> {
        if !self.is_broadcast && !self.prefixes.is_empty() {
            return Err(Failure::text("ERR PREFIX option requires BCAST mode to be enabled"));
        }
        if now.is_some_and(|now| (now == Mode::Broadcast) != self.is_broadcast) {
            return Err(Failure::new(format!("ERR You can't switch BCAST mode on/off {SWITCHED}")));
        }
        if self.is_broadcast && (self.opts_in || self.opts_out) {
            return Err(Failure::text("ERR OPTIN and OPTOUT are not compatible with BCAST"));
        }
        if self.opts_in && self.opts_out {
            return Err(Failure::text("ERR You can't specify both OPTIN mode and OPTOUT mode"));
        }
        if (self.opts_in && now == Some(Mode::OptOut)) || (self.opts_out && now == Some(Mode::OptIn)) {
            return Err(Failure::new(format!("ERR You can't switch OPTIN/OPTOUT mode {SWITCHED}")));
        }
        Ok(match () {
            () if self.is_broadcast => Mode::Broadcast,
            () if self.opts_in => Mode::OptIn,
            () if self.opts_out => Mode::OptOut,
            () => Mode::Default,
        })
    }

    /// Whether no prefix begins with another one.
    fn check_prefixes(&self, now: &[Bytes]) -> Outcome {
        let overlap = |prefix: &[u8], kind: &str, other: &[u8]| {
            let [prefix, other] = [prefix, other].map(|prefix| shown::short(prefix, 128));
            Err(Failure::new(format!(
                "ERR Prefix '{prefix}' overlaps with {kind} prefix '{other}'. Prefixes for a single client must not overlap."
            )))
        };
        let do_overlap = |a: &[u8], b: &[u8]| a.starts_with(b) || b.starts_with(a);
        for (place, prefix) in self.prefixes.iter().enumerate() {
            // Repeating the same prefix is no conflict.
            if let Some(other) = now.iter().find(|other| do_overlap(prefix, other) && other != prefix) {
                return overlap(prefix, "an existing", other);
            }
            if let Some(other) = self.prefixes.iter().skip(place + 1).find(|other| do_overlap(prefix, other)) {
                return overlap(prefix, "another provided", other);
            }
        }
        Ok(())
    }
}

pub(super) fn tracking(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let asked = Asked::read(cx, arguments)?;
    let client = &cx.session.client;
    if arguments.is(2, "OFF") {
        cx.shared.tracking.end(client.id);
        client.describe(|described| described.tracking = Default::default());
        cx.session.tracked = None;
    } else if arguments.is(2, "ON") {
        let mode = asked.mode(cx.session.tracked.map(|tracked| tracked.mode))?;
        let now = cx.shared.tracking.of(client.id);
        asked.check_prefixes(now.as_ref().map_or(&[], |(_, prefixes)| prefixes))?;
        cx.shared.tracking.begin(client, mode, asked.skips_own, asked.redirect, &asked.prefixes);
        // It may be followed by changes in a transaction.
        cx.keys.remember_changes();
        client.describe(|described| {
            described.tracking.is_on = true;
            described.tracking.is_broken = false;
            described.tracking.is_broadcast = mode == Mode::Broadcast;
            described.tracking.redirect = asked.redirect.unwrap_or(0);
        });
        cx.session.tracked = Some(Tracked { mode, has_chosen: false });
    } else {
        return Err(Failure::SYNTAX);
    }
    cx.out.ok();
    Ok(())
}

pub(super) fn caching(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let Some(tracked) = &mut cx.session.tracked else {
        return Err(Failure::text(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled",
        ));
    };
    let (mode, word) = match () {
        () if arguments.is(2, "YES") => (Mode::OptIn, "YES is only valid when tracking is enabled in OPTIN mode."),
        () if arguments.is(2, "NO") => (Mode::OptOut, "NO is only valid when tracking is enabled in OPTOUT mode."),
        () => return Err(Failure::SYNTAX),
    };
    if tracked.mode != mode {
        return Err(Failure::new(format!("ERR CLIENT CACHING {word}")));
    }
    tracked.has_chosen = true;
    cx.out.ok();
    Ok(())
}

/// Returns -1 when the client tracks no keys.
fn redirection(cx: &Context<'_, '_>) -> i64 {
    let described = cx.session.client.described().tracking;
    if described.is_on { i64::try_from(described.redirect).unwrap_or(0) } else { -1 }
}

pub(super) fn get_redirection(cx: &mut Context<'_, '_>, _: Arguments<'_>) -> Outcome {
    let redirection = redirection(cx);
    cx.out.integer(redirection);
    Ok(())
}

pub(super) fn info(cx: &mut Context<'_, '_>, _: Arguments<'_>) -> Outcome {
    let found = cx.shared.tracking.of(cx.session.client.id);
    let has_chosen = cx.session.tracked.is_some_and(|tracked| tracked.has_chosen);
    let mut flags = Vec::new();
    let mut own = Vec::new();
    match found {
        None => flags.push("off"),
        Some((tracker, prefixes)) => {
            flags.push("on");
            match tracker.mode {
                Mode::Default => {}
                Mode::Broadcast => flags.push("bcast"),
                Mode::OptIn => flags.extend(["optin"].into_iter().chain(has_chosen.then_some("caching-yes"))),
                Mode::OptOut => flags.extend(["optout"].into_iter().chain(has_chosen.then_some("caching-no"))),
            }
            flags.extend(tracker.skips_own.then_some("noloop"));
            flags.extend(tracker.is_broken.then_some("broken_redirect"));
            own = prefixes;
        }
    }
    let redirection = redirection(cx);
    cx.out.map(3);
    cx.out.bulk("flags");
    cx.out.set(flags.len());
    flags.iter().for_each(|flag| cx.out.bulk(flag));
    cx.out.bulk("redirect");
    cx.out.integer(redirection);
    cx.out.bulk("prefixes");
    cx.out.array(own.len());
    own.iter().for_each(|prefix| cx.out.bulk(prefix));
    Ok(())
}
