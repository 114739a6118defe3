//! `docs/reference/redis.md` says what the code does.

use forebay_server::commands::{compatibility, table};
use std::path::Path;

const BEGIN: &str = "<!-- The table of commands is made from the code. -->\n";
const END: &str = "<!-- The table ends. -->\n";
/// If this variable is set, the test writes the page anew.
const REWRITE: &str = "FOREBAY_REWRITE";

#[test]
fn the_page_lists_the_commands() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/redis.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("the table begins");
    let (found, after) = rest.split_once(END).expect("the table ends");
    let expected = format!("\n{}\n", compatibility::table(&table::registry()));
    if std::env::var_os(REWRITE).is_some() {
        std::fs::write(&path, format!("{before}{BEGIN}{expected}{END}{after}")).unwrap();
        return;
    }
    assert!(found == expected, "the page is old: `{REWRITE}=1 cargo test -p forebay-server --test documentation`");
}
