//! `forebay top`: what a process does, in a terminal.
//!
//! | module | holds |
//! |---|---|
//! | `figures` | numbers for people |
//! | `frame` | a status and its rates as lines |
//! | `screen` | these lines on a terminal, until a key or a signal ends it |

mod figures;
mod frame;
mod screen;

use crate::failure::{Failure, Stage};
use crate::output::{self, Format};
use crate::units;
use forebay::ErrorKind;
use forebay_admin::{Rates, Status};
use forebay_env::{Clock, SystemClock};
use serde::Serialize;
use std::io::IsTerminal;
use std::net::Ipv6Addr;
use std::str::FromStr;
use std::time::Duration;

/// What a user may have to correct when no process answers.
const HINT: &str = "; is this the address that the process prints after `admin`?";

/// Which process, and how often.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Where the process serves operators: the address after `admin` that it prints, with or without http://.
    #[arg(default_value = "127.0.0.1:9121", value_name = "ADDRESS:PORT")]
    address: Address,
    /// How often it is asked.
    #[arg(long, default_value = "1s", value_parser = units::interval, value_name = "DURATION")]
    interval: Duration,
    /// Ask twice, print what happened in between, and end. This is also done when standard output is no terminal.
    #[arg(long)]
    once: bool,
    /// How it is printed. As JSON: an object a line, each interval, or one with --once.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

/// Where a process serves operators: `HOST:PORT`.
#[derive(Debug, Clone)]
struct Address(String);

impl FromStr for Address {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let address = text.trim_start_matches("http://").trim_end_matches('/');
        let is_host = |host: &str| match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(number) => number.parse::<Ipv6Addr>().is_ok(),
            None => !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte)),
        };
        match address.rsplit_once(':') {
            Some((host, port)) if is_host(host) && port.parse::<u16>().is_ok() => Ok(Self(address.to_owned())),
            _ => Err("ADDRESS:PORT, such as 127.0.0.1:9121, as the process prints it after `admin`"),
        }
    }
}

/// What is printed as JSON.
#[derive(Debug, Serialize)]
struct Report<'a> {
    status: &'a Status,
    rates: &'a Rates,
}

/// Shows what the process does, until it is told to end. Not on a terminal, it also ends when nobody answers any more.
///
/// # Errors
/// When nobody answers at the address.
pub fn execute(arguments: &Arguments) -> Result<(), Failure> {
    let address = arguments.address.0.clone();
    let ask_at = move |stage| forebay_admin::fetch(&address).map_err(|error| Failure::new(error.kind(), stage, error));
    let hint = |failure: Failure| failure.going_on(ErrorKind::Unavailable, HINT);
    let is_text = arguments.format == Format::Table;
    if is_text && !arguments.once && std::io::stdout().is_terminal() {
        return screen::show(arguments.interval, move || ask_at(Stage::Start)).map_err(hint);
    }
    let clock = SystemClock::new();
    let mut before = ask_at(Stage::Start).map_err(hint)?;
    loop {
        clock.sleep(arguments.interval);
        let status = ask_at(Stage::Running)?;
        let rates = Rates::between(&before, &status);
        if is_text {
            for line in frame::lines(&status, &rates) {
                output::line(&line.text)?;
            }
        } else {
            output::json(&Report { status: &status, rates: &rates })?;
        }
        if arguments.once || is_text {
            return Ok(());
        }
        before = status;
    }
}
