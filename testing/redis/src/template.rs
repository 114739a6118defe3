//! Lines of text that are completed with random words to commands.
//!
//! A line is an agreement's sign, a weight, and words:
//!
//! - `{k}` is a key of the family, or rarely of another type; `{m}` a member or field; `{e}` one of many elements; `{v}` a
//!   value; `{i}` an index, `{j}` a number of three digits, `{n}` a small number that is not negative, `{f}` a number with
//!   a fraction of eighths, `{g}` one with any fraction, rarely written as only C reads it, `{q}` the same without such
//!   numbers: Redis's `SORT` mistakes a too small one for an error of its own, `{t}` seconds until a key expires,
//!   `{ms}` milliseconds, `{at}` and `{atms}` the same since 1970, `{p}` a pattern, `{lex}` a bound of `ZRANGEBYLEX`,
//!   `{sc}` one of `ZRANGEBYSCORE`, `{db}` a database, `{b}` a bit, `{bt}` a type of `BITFIELD`, `{lon}` and `{lat}` a
//!   longitude and a latitude, `{len}` a length, `{unit}` its unit, `{sid}` the id of a stream's entry, `{hid}` one that
//!   is likely, `{aid}` the id of a new entry, `{rid}` the bound of a range of ids, `{script}` a script and `{lib}` a
//!   library (`crate::scripts`), `{gr}` a group, `{co}` a consumer, `{num}` a number that is a part of the names `{wkey}`
//!   and `{okey}`;
//! - `{m*}`, `{e*}`, `{k*}`, `{v*}` are one to four of them; `{kv*}`, `{mv*}`, `{fm*}` are pairs;
//! - `(NX|XX|)` is one of these, each of them words or nothing.
//!
//! Some words are replaced by nonsense, some are left out, and some are added.

use crate::agreement::Agreement;
use crate::scripts::{LIBRARIES, SCRIPTS};
use forebay_env::Random;

/// A command to be completed.
#[derive(Debug, Clone)]
pub struct Template {
    /// How replies must agree.
    pub agreement: Agreement,
    weight: u64,
    words: &'static str,
}

/// The templates of a family.
#[derive(Debug, Clone)]
pub struct Templates {
    all: Vec<Template>,
    weight: u64,
    /// The prefix of the family's keys.
    prefix: &'static str,
    now_s: i64,
}

const NONSENSE: &[&str] =
    &["", "x", "-1", "1.5", "9223372036854775807", "9223372036854775808", "NX", "nan", "(", "-", "0"];
/// Suffixes of names of commands that are left unchanged.
const FIXED: &[&[u8]] = &[b"SPOP", b"SCAN", b"INCRBYFLOAT", b"SUBSCRIBE", b"PUBLISH"];
/// Prefixes of such names.
const WAITS: &[&[u8]] = &[b"BL", b"BRPOP", b"BZ", b"WAIT"];
/// Parts of such lines. Sums of `{f}` stay exact in any format; an id without one word is a time; and where a request makes
/// no sense, Redis leaves out keys.
const PARTS: &[&str] = &[
    "CLIENT PAUSE",
    "COMMAND (",
    "COMMAND GETKEYS (X",
    "COMMAND GETKEYS (E",
    "COMMAND GETKEYS (S",
    "COMMAND INFO (",
    "COMMAND GETKEYS (LMPOP",
    "LATENCY (",
    "MEMORY (",
    "NOMKSTREAM *",
    "ZADD z0 0 ",
    "ZADD {k} 0 ",
    "{f}",
];
/// Prefixes of the keys of all families.
const PREFIXES: &[&str] = &["s", "h", "t", "l", "z", "x"];
/// Numbers with fractions as C reads them, or does not.
const ODD_NUMBERS: &[&str] = &[
    "0x1.8p3",
    "-0X.4",
    "0x1p-1074",
    "1e-400",
    "-1e-400",
    "1e400",
    "0e400",
    "5e-324",
    "1e308",
    ".5",
    "5.",
    "0x",
    "1e",
    " 1",
];
/// Bounds of scores; Redis accepts more of them.
const ODD_BOUNDS: &[&str] =
    &["( 1", " 1", "", "(", "1e400", "(-1e400", "1e-400", "(0x1p3", "( inf", "nan", "(nan", "1 ", "((1", "(x"];
const KEYS: u64 = 6;
const MEMBERS: u64 = 40;

impl Templates {
    /// Reads a table of lines.
    ///
    /// # Panics
    /// When a line is wrong.
    #[must_use]
    pub fn read(tables: &[&'static str], prefix: &'static str, now_ms: u64) -> Self {
        let lines = tables.iter().flat_map(|table| table.lines()).map(str::trim);
        let all: Vec<Template> = lines
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .map(|line| {
                let (sign, rest) = line.split_once(' ').expect("a sign");
                let (weight, words) = rest.trim_start().split_once(' ').expect("a weight");
                let weight = weight.parse().expect("a number");
                Template { agreement: Agreement::of_sign(sign), weight, words: words.trim() }
            })
            .collect();
        let weight = all.iter().map(|template| template.weight).sum();
        Self { all, weight, prefix, now_s: i64::try_from(now_ms / 1000).unwrap_or(0) }
    }

    /// A random command, and how its replies must agree.
    pub fn next(&self, random: &mut Random) -> (Agreement, Vec<Vec<u8>>) {
        let mut chosen = random.below(self.weight);
        let template = self.all.iter().find(|template| {
            let is_it = chosen < template.weight;
            chosen = chosen.saturating_sub(template.weight);
            is_it
        });
        let Some(template) = template else { return (Agreement::Equal, vec![b"PING".to_vec()]) };
        let mut words = Vec::new();
        self.complete(template.words, random, &mut words);
        let mut agreement = template.agreement;
        // Scans must run to their ends, so their cursors stay.
        let is_scan = matches!(template.agreement, Agreement::Scan | Agreement::ScanPairs | Agreement::Any);
        // For these, scores of ranges by member stay equal, removals are not random, nobody waits for ever, a command has
        // one reply, and the server is not asked for everything that it knows.
        let is_fixed = FIXED.iter().any(|ends| words.first().is_some_and(|word| word.ends_with(ends)))
            || WAITS.iter().any(|begins| words.first().is_some_and(|word| word.starts_with(begins)))
            || PARTS.iter().any(|part| template.words.contains(part))
            || words.iter().any(|word| word == b"BLOCK");
        if random.one_in(1, 60) && words.len() > 1 && !is_scan && !is_fixed {
            if matches!(agreement, Agreement::Elements | Agreement::Pairs) {
                agreement = Agreement::Form;
            }
            let place = 1 + random.below(words.len() as u64 - 1) as usize;
            match random.below(3) {
                0 => drop(words.remove(place)),
                1 => words.insert(place, pick(random, NONSENSE).into()),
                _ => {
                    if let Some(word) = words.get_mut(place) {
                        *word = pick(random, NONSENSE).into();
                    }
                }
            }
        }
        (agreement, words)
    }

    fn complete(&self, mut text: &str, random: &mut Random, words: &mut Vec<Vec<u8>>) {
        while !text.is_empty() {
            text = text.trim_start();
            if let Some(rest) = text.strip_prefix('(') {
                let (choice, rest) = rest.split_once(')').expect("a closing parenthesis");
                let choices: Vec<&str> = choice.split('|').collect();
                self.complete(pick(random, &choices), random, words);
                text = rest;
                continue;
            }
            let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
            text = rest;
            match word.strip_prefix('{').and_then(|word| word.strip_suffix('}')) {
                None if word.is_empty() => {}
                None => words.push(word.into()),
                Some(kind) => match kind.strip_suffix('*') {
                    None => words.push(self.word(kind, random)),
                    Some(kinds) => {
                        for _ in 0..=random.below(4) {
                            words.extend(kinds.chars().map(|kind| self.word(kind.encode_utf8(&mut [0; 4]), random)));
                        }
                    }
                },
            }
        }
    }

    fn word(&self, kind: &str, random: &mut Random) -> Vec<u8> {
        match kind {
            "k" => {
                let prefix = if random.one_in(1, 25) { pick(random, PREFIXES) } else { self.prefix };
                format!("{prefix}{}", random.below(KEYS)).into()
            }
            "m" => format!("m{}", random.below(MEMBERS)).into(),
            "e" => format!("e{}", random.below(100_000)).into(),
            "script" => pick(random, SCRIPTS).into(),
            "lib" => pick(random, LIBRARIES).into(),
            "v" => value(random),
            "i" => match random.below(20) {
                0 => pick(random, &["9223372036854775807", "-9223372036854775808", "1000000", "-1000000"]).into(),
                _ => (random.below(24) as i64 - 12).to_string().into(),
            },
            "j" => (random.below(2000) as i64 - 1000).to_string().into(),
            "n" => random.below(12).to_string().into(),
            "f" => eighths(random),
            "g" if random.one_in(1, 40) => pick(random, ODD_NUMBERS).into(),
            "g" | "q" => fraction(random),
            "w" => random.below(4).to_string().into(),
            "t" => (10_000 + random.below(1_000_000_000)).to_string().into(),
            "ms" => (10_000_000 + random.below(1_000_000_000_000)).to_string().into(),
            "at" => (self.now_s + 10_000 + random.below(1_000_000_000) as i64).to_string().into(),
            "atms" => (self.now_s * 1000 + 10_000_000 + random.below(1_000_000_000_000) as i64).to_string().into(),
            "p" => {
                pick(random, &["*", "m1*", "?1", "m[1-3]*", "m[^1]*", "*2", "\\m3", "s*", "[sh]?", "nothing"]).into()
            }
            "lex" => match random.below(8) {
                0 => pick(random, &["-", "+", "-", "+", "", "(", "[", "(+", "[-", "-m"]).into(),
                1 => b"m1".to_vec(),
                _ => format!("{}m{}", pick(random, &["[", "("]), random.below(MEMBERS)).into(),
            },
            "sc" => match random.below(8) {
                0 => pick(random, &["-inf", "+inf", "inf", "(inf", "(-inf"]).into(),
                // As C reads numbers.
                1 if random.one_in(1, 3) => pick(random, ODD_BOUNDS).into(),
                _ => {
                    let bound = fraction(random);
                    if random.one_in(1, 3) { [b"(", &bound[..]].concat() } else { bound }
                }
            },
            "db" => random.below(3).to_string().into(),
            "sid" => match random.below(4) {
                0 => random.below(9).to_string().into(),
                _ => format!("{}-{}", random.below(9), random.below(12)).into(),
            },
            "num" => random.below(30).to_string().into(),
            "wkey" => format!("w_{}", random.below(30)).into(),
            "okey" => format!("o_{}", random.below(30)).into(),
            "hid" => format!("7-{}", random.below(12)).into(),
            "aid" => match random.below(4) {
                0 => format!("{}-{}", random.below(8), random.below(12)).into(),
                1 => format!("{}-*", random.below(8)).into(),
                _ => b"7-*".to_vec(),
            },
            "rid" => match random.below(6) {
                0 => pick(random, &["-", "+"]).into(),
                1 => format!("({}-{}", random.below(9), random.below(12)).into(),
                2 => pick(random, &["(7", "(", "(x", "(0-0", "(18446744073709551615-18446744073709551615"]).into(),
                _ => format!("{}-{}", random.below(9), random.below(12)).into(),
            },
            "gr" => pick(random, &["g0", "g1"]).into(),
            "co" => pick(random, &["c0", "c1", "c2"]).into(),
            "lon" => degrees(random, 180),
            "lat" => degrees(random, 85),
            "len" => match random.below(12) {
                0 => b"0".to_vec(),
                // Half around the earth.
                1 => (random.below(30_000_000) as f64 / 7.0).to_string().into(),
                _ => (random.below(3000) as f64 / 7.0).to_string().into(),
            },
            "unit" => pick(random, &["m", "km", "km", "mi", "ft", "KM"]).into(),
            "b" => random.below(2).to_string().into(),
            "bt" => format!("{}{}", pick(random, &["u", "i"]), 1 + random.below(64)).into(),
            "o" => match random.below(3) {
                0 => format!("#{}", random.below(8)).into(),
                _ => random.below(200).to_string().into(),
            },
            _ => panic!("no word has the kind {kind}"),
        }
    }
}

fn value(random: &mut Random) -> Vec<u8> {
    match random.below(8) {
        0 => Vec::new(),
        1 => (0..random.below(60)).map(|_| random.word() as u8).collect(),
        2 => eighths(random),
        3 | 4 => (random.below(200) as i64 - 100).to_string().into(),
        5 => pick(random, &["9223372036854775807", "-9223372036854775808", "01", " 1", "+1"]).into(),
        _ => format!("v{}", random.below(100)).into(),
    }
}

/// A number with exact sums in any format.
fn eighths(random: &mut Random) -> Vec<u8> {
    match random.below(10) {
        0 => pick(random, &["1e3", "-25e-1", "0.5", "3.0", "-0", "1e10", "inf"]).into(),
        1..=4 => (random.below(30) as i64 - 15).to_string().into(),
        _ => format!("{}", (random.below(400) as i64 - 200) as f64 / 8.0).into(),
    }
}

fn fraction(random: &mut Random) -> Vec<u8> {
    match random.below(10) {
        0 => pick(random, &["1e3", "-2.5e-2", "0.1", "3.0", "inf", "-inf", "1e10"]).into(),
        1..=4 => (random.below(30) as i64 - 15).to_string().into(),
        _ => format!("{}.{}", random.below(30) as i64 - 15, random.below(100)).into(),
    }
}

/// A place within a part of the earth, or rarely anywhere.
fn degrees(random: &mut Random, most: u64) -> Vec<u8> {
    let range = if random.one_in(1, 4) { most } else { 6 };
    format!("{}", random.below(range * 20_000_000) as f64 / 10_000_000.0 - range as f64).into()
}

fn pick<'a>(random: &mut Random, from: &[&'a str]) -> &'a str {
    from.get(random.below(from.len() as u64) as usize).copied().unwrap_or_default()
}
