//! What clients that watch all commands see of a command.

use crate::commands::arguments::Arguments;
use crate::commands::command::{Command, flags};
use crate::commands::migrate;
use crate::state::session::Session;
use crate::state::shared::Shared;

/// The word that replaces a secret.
const REDACTED: &[u8] = b"(redacted)";

/// Shows a command to the clients that watch all commands. Commands for administrators are not shown.
pub fn show(shared: &Shared, session: &Session, command: &Command, arguments: Arguments<'_>, now_ms: u64) {
    if shared.monitors.is_empty() || command.has(flags::ADMIN) {
        return;
    }
    let mut words = arguments.from(0).to_vec();
    for place in secrets(command, arguments) {
        if let Some(word) = words.get_mut(place) {
            *word = REDACTED;
        }
    }
    let address = if session.is_in_script { "lua".to_owned() } else { session.client.address.to_string() };
    shared.monitors.show(now_ms, session.database, &address, &words);
}

/// The places of the words that nobody else may see.
fn secrets(command: &Command, arguments: Arguments<'_>) -> std::ops::Range<usize> {
    match command.name {
        "auth" => 1..arguments.len(),
        "hello" => {
            let mut words = arguments.words(2);
            while !words.is_done() {
                if words.left() >= 3 && words.take("AUTH") {
                    return words.place()..words.place() + 2;
                }
                if words.take_with_value("SETNAME").is_none() {
                    break;
                }
            }
            0..0
        }
        "migrate" => migrate::secrets(arguments),
        _ => 0..0,
    }
}
