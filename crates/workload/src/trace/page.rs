//! Lines of a page trace.

use super::request::MAX_PAGES;

/// Parses a line: the first page and the number of pages. An error says what would be valid.
pub(super) fn parse(line: &str) -> Result<(u64, u64), String> {
    let mut fields = line.split_ascii_whitespace();
    let (Some(start), Some(count), Some(_ignored), Some(_request), None) =
        (fields.next(), fields.next(), fields.next(), fields.next(), fields.next())
    else {
        return Err("expected four numbers, start count ignore request".into());
    };
    let start = start.parse::<u64>().map_err(|_| format!("the page `{start}` is not a number"))?;
    let count = count.parse::<u64>().map_err(|_| format!("the count `{count}` is not a number"))?;
    if count > MAX_PAGES || start.checked_add(count).is_none() {
        return Err(format!("{count} pages from {start}: at most {MAX_PAGES} are possible"));
    }
    Ok((start, count))
}
