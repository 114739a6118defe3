//! `LCS`: the longest common subsequence of two strings.

use crate::commands::arguments::{Arguments, integer};
use crate::commands::command::flags::READONLY;
use crate::commands::command::{Command, Context, Family};
use crate::keyspace::failure::{Failure, Outcome};
use crate::keyspace::header::Content;
use bytes::Bytes;

/// The commands of this module.
pub const COMMANDS: &[Command] = &[Command::new(Family::String, "lcs", -3, READONLY, lcs)
    .keys(1, 2, 1)
    .doc("7.0.0", "Returns the longest common subsequence of two strings.")];

/// Most cells of the table of lengths: 256 MiB.
const MAX_CELLS: usize = 64 << 20;

/// A stretch that both strings have: where it begins in each, and how long it is.
type Match = (usize, usize, usize);

fn lcs(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let (a, b) = (string(cx, arguments.at(1))?, string(cx, arguments.at(2))?);
    let (mut only_length, mut with_matches, mut with_lengths, mut least) = (false, false, false, 0);
    let mut words = arguments.words(3);
    while !words.is_done() {
        match () {
            () if words.take("IDX") => with_matches = true,
            () if words.take("LEN") => only_length = true,
            () if words.take("WITHMATCHLEN") => with_lengths = true,
            () => {
                let text = words.take_with_value("MINMATCHLEN").ok_or(Failure::SYNTAX)?;
                least = usize::try_from(integer(text)?).unwrap_or(0);
            }
        }
    }
    if only_length && with_matches {
        return Err(Failure::text("ERR If you want both the length and indexes, please just use IDX."));
    }
    let (sequence, matches) = longest(&a, &b)?;
    if only_length {
        cx.out.count(sequence.len());
    } else if with_matches {
        let matches: Vec<Match> = matches.into_iter().filter(|(_, _, length)| *length >= least).collect();
        cx.out.map(2);
        cx.out.bulk("matches");
        cx.out.array(matches.len());
        for (in_a, in_b, length) in matches {
            cx.out.array(2 + usize::from(with_lengths));
            for start in [in_a, in_b] {
                cx.out.array(2);
                cx.out.count(start);
                cx.out.count(start + length - 1);
            }
            if with_lengths {
                cx.out.count(length);
            }
        }
        cx.out.bulk("len");
        cx.out.count(sequence.len());
    } else {
        cx.out.bulk(sequence);
    }
    Ok(())
}

fn string(cx: &mut Context<'_, '_>, key: &[u8]) -> Outcome<Bytes> {
    match cx.look_up(key)?.map(|header| header.content) {
        None => Ok(Bytes::new()),
        Some(Content::String(bytes)) => Ok(bytes),
        Some(_) => Err(Failure::text("ERR The specified keys must contain string values")),
    }
}

/// A longest common subsequence, and the stretches that it consists of, the last one first.
fn longest(a: &[u8], b: &[u8]) -> Outcome<(Vec<u8>, Vec<Match>)> {
    let width = b.len() + 1;
    let cells = (a.len() + 1).checked_mul(width).filter(|&cells| cells <= MAX_CELLS);
    let cells =
        cells.ok_or(Failure::text("ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len"))?;
    // At `i * width + j`: the length of the longest subsequence of the first `i` bytes of `a` and the first `j` bytes
    // of `b`.
    let mut lengths = vec![0_u32; cells];
    for (i, byte) in a.iter().enumerate() {
        let (before, row) = lengths.split_at_mut((i + 1) * width);
        let before = before.get(i * width..).unwrap_or_default();
        let mut left = 0;
        for (((other, cell), above), diagonal) in
            b.iter().zip(row.iter_mut().skip(1)).zip(before.iter().skip(1)).zip(before.iter())
        {
            left = if byte == other { diagonal + 1 } else { left.max(*above) };
            *cell = left;
        }
    }
    let at = |i: usize, j: usize| lengths.get(i * width + j).copied().unwrap_or(0);
    let (mut i, mut j) = (a.len(), b.len());
    let (mut sequence, mut matches): (Vec<u8>, Vec<Match>) = (Vec::new(), Vec::new());
    while i > 0 && j > 0 {
        let (byte, other) = (a.get(i - 1).copied().unwrap_or(0), b.get(j - 1).copied().unwrap_or(0));
        if byte == other {
            sequence.push(byte);
            match matches.last_mut() {
                Some((in_a, in_b, length)) if *in_a == i && *in_b == j => {
                    (*in_a, *in_b, *length) = (i - 1, j - 1, *length + 1)
                }
                _ => matches.push((i - 1, j - 1, 1)),
            }
            (i, j) = (i - 1, j - 1);
        } else if at(i - 1, j) > at(i, j - 1) {
            i -= 1;
        } else {
            j -= 1;
        }
    }
    sequence.reverse();
    Ok((sequence, matches))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_documentation() {
        let (sequence, matches) = longest(b"ohmytext", b"mynewtext").unwrap();
        assert_eq!((sequence.as_slice(), matches), (&b"mytext"[..], vec![(4, 5, 4), (2, 0, 2)]));
        assert!(longest(&vec![0; 9000], &vec![0; 9000]).is_err());
    }
}
