//! Formats of sizes, durations, rates and addresses on the command line.
//!
//! | what | examples | units |
//! |---|---|---|
//! | size | `4096`, `64KiB`, `512MB`, `8GiB`, `8G` | B; KiB, MiB, GiB, TiB (1024) and K, M, G, T for them; kB, MB, GB, TB (1000) |
//! | duration | `2us`, `1.5ms`, `10s` | ns, us, ms, s |
//! | bandwidth | `100Gbps`, `100Gb/s`, `12.5GB/s` | bits (b) or bytes (B) per second; k, M, G, T |
//! | rate | `30M`, `1500000` | k, M, G |
//! | address to listen on | `127.0.0.1:6379`, `[::1]:0` | |

use forebay::MemoryNodeOptions;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

const SIZES: [(&str, f64); 13] = [
    ("", 1.0),
    ("B", 1.0),
    ("KiB", 1024.0),
    ("K", 1024.0),
    ("MiB", 1_048_576.0),
    ("M", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
    ("G", 1_073_741_824.0),
    ("TiB", 1_099_511_627_776.0),
    ("kB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("TB", 1e12),
];
const DURATIONS: [(&str, f64); 4] = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
const MULTIPLES: [(&str, f64); 5] = [("", 1.0), ("k", 1e3), ("K", 1e3), ("M", 1e6), ("G", 1e9)];

/// A number of bytes.
///
/// # Errors
/// What would be valid.
pub fn size(text: &str) -> Result<u64, String> {
    let right = "a size is a number of bytes with or without a unit, such as 4096, 64KiB, 512MB or 8GiB";
    let bytes = scaled(text, &SIZES).ok_or_else(|| right.to_owned())?;
    if bytes < 9e15 { Ok(bytes.round() as u64) } else { Err(format!("more than can be; {right}")) }
}

/// The memory of a node in this process.
///
/// # Errors
/// What would be valid.
pub fn node_memory(text: &str) -> Result<u64, String> {
    let bytes = size(text)?;
    MemoryNodeOptions::with_memory(bytes).check().map(|()| bytes).map_err(|error| error.to_string())
}

/// A number of bytes in the largest unit of which it is a multiple, as [`size`] takes it.
pub fn of_size(bytes: u64) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match units.into_iter().find(|&(_, bits)| bytes > 0 && bytes.trailing_zeros() >= bits) {
        Some((unit, bits)) => format!("{}{unit}", bytes >> bits),
        None => bytes.to_string(),
    }
}

/// A number of bytes that fits into memory.
///
/// # Errors
/// What would be valid.
pub fn length(text: &str) -> Result<usize, String> {
    usize::try_from(size(text)?).map_err(|_| "more than this machine can address".to_owned())
}

/// Where to listen: no name, as that may have several addresses.
///
/// # Errors
/// What would be valid.
pub fn listening(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "use an IP address and a port, such as 127.0.0.1:0".to_owned())
}

/// A parser of a number of bytes within a range.
pub fn size_in(range: RangeInclusive<u64>) -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync + 'static {
    move |text| {
        let bytes = size(text)?;
        if range.contains(&bytes) { Ok(bytes) } else { Err(format!("a size {}", described(&range))) }
    }
}

/// As [`size_in`], for what fits into memory.
pub fn length_in(range: RangeInclusive<u64>) -> impl Fn(&str) -> Result<usize, String> + Clone + Send + Sync + 'static {
    let parse = size_in(range);
    move |text| usize::try_from(parse(text)?).map_err(|_| "more than this machine can address".to_owned())
}

fn described(range: &RangeInclusive<u64>) -> String {
    match *range.end() {
        u64::MAX => format!("of at least {} is needed", of_size(*range.start())),
        end => format!("from {} to {} is needed", of_size(*range.start()), of_size(end)),
    }
}

/// The length of a block in storage.
///
/// # Errors
/// What would be valid.
pub fn block_length(text: &str) -> Result<u32, String> {
    let bytes = size(text)?;
    let right = || "a block has a power of two of bytes, from 1 KiB to 1 MiB".to_owned();
    u32::try_from(bytes)
        .ok()
        .filter(|bytes| bytes.is_power_of_two() && (1 << 10..=1 << 20).contains(bytes))
        .ok_or_else(right)
}

/// A span of time.
///
/// # Errors
/// What would be valid.
pub fn duration(text: &str) -> Result<Duration, String> {
    let right = "a duration is a number with a unit, such as 500ns, 2us, 1.5ms or 10s";
    let nanos = scaled(text, &DURATIONS).ok_or_else(|| right.to_owned())?;
    if nanos < 1e18 { Ok(Duration::from_nanos(nanos.round() as u64)) } else { Err(format!("too long; {right}")) }
}

/// A span of time that is not 0.
///
/// # Errors
/// What would be valid.
pub fn interval(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("longer than 0 is needed, such as 1s".to_owned()),
        interval => Ok(interval),
    }
}

/// Bits per second.
///
/// # Errors
/// What would be valid.
pub fn bandwidth(text: &str) -> Result<f64, String> {
    let right = "a bandwidth is bits or bytes a second, such as 100Gbps, 100Gb/s or 12.5GB/s".to_owned();
    let parsed = || {
        if let Some(bits) = text.strip_suffix("bps").or_else(|| text.strip_suffix("b/s")) {
            return scaled(bits, &MULTIPLES);
        }
        scaled(text.strip_suffix("B/s")?, &MULTIPLES).map(|bytes| bytes * 8.0)
    };
    parsed().filter(|bits| *bits > 0.0).ok_or(right)
}

/// Operations per second.
///
/// # Errors
/// What would be valid.
pub fn rate(text: &str) -> Result<f64, String> {
    let right = "a rate is operations a second, such as 1500000 or 30M".to_owned();
    scaled(text, &MULTIPLES).filter(|rate| *rate > 0.0).ok_or(right)
}

/// A number that is not negative, followed by one of `units`.
fn scaled(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(end)?;
    let (_, factor) = units.iter().find(|(name, _)| *name == unit.trim_start())?;
    let number = number.parse::<f64>().ok()? * factor;
    number.is_finite().then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        let parsed = ["0", "4096", "64KiB", "512MB", "8GiB", "1.5G", "2 MiB", "12kB"].map(|text| size(text).unwrap());
        assert_eq!(parsed, [0, 4096, 65_536, 512_000_000, 8 << 30, 3 << 29, 2 << 20, 12_000]);
        for wrong in ["", "GiB", "-1", "1gib", "1e9", "8 GiBs", "1.2.3", "99999999TiB", "0x10", "NaN"] {
            assert!(size(wrong).unwrap_err().contains("8GiB"), "{wrong}");
        }
        for text in ["0", "4097", "64KiB", "1536MiB", "8GiB", "3TiB"] {
            assert_eq!(of_size(size(text).unwrap()), text);
        }
    }

    #[test]
    fn durations() {
        let parsed = ["500ns", "2us", "1.5ms", "10s"].map(|text| duration(text).unwrap().as_nanos());
        assert_eq!(parsed, [500, 2_000, 1_500_000, 10_000_000_000]);
        for wrong in ["2", "us", "2 hours", "-1s", "9999999999999s"] {
            assert!(duration(wrong).unwrap_err().contains("1.5ms"), "{wrong}");
        }
    }

    #[test]
    fn bandwidths_and_rates() {
        for same in ["100Gbps", "100Gb/s", "12.5GB/s", "100000Mbps"] {
            assert!((bandwidth(same).unwrap() - 100e9).abs() < 1.0, "{same}");
        }
        for wrong in ["100", "100G", "0Gbps", "fast", "100GBps "] {
            assert!(bandwidth(wrong).is_err(), "{wrong}");
        }
        assert!((rate("30M").unwrap() - 30e6).abs() < 1.0 && (rate("15").unwrap() - 15.0).abs() < 1e-9);
        assert!(rate("0").is_err() && rate("30Mops").is_err());
    }
}
