//! Numbers for people: three digits and a unit.

/// A count, or a rate.
pub fn short(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        size if size >= 1e9 => (value / 1e9, " G"),
        size if size >= 1e6 => (value / 1e6, " M"),
        size if size >= 1e3 => (value / 1e3, " k"),
        _ => (value, ""),
    };
    digits(scaled) + unit
}

/// A number of bytes.
pub fn bytes(value: f64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut scaled = value;
    let mut units = UNITS.iter().copied();
    let mut unit = units.next().unwrap_or_default();
    while scaled.abs() >= 1024.0
        && let Some(larger) = units.next()
    {
        scaled /= 1024.0;
        unit = larger;
    }
    format!("{} {unit}", digits(if unit == "B" { scaled.round() } else { scaled }))
}

/// A duration in seconds; nothing for none.
pub fn duration(seconds: Option<f64>) -> String {
    let Some(seconds) = seconds else { return "–".to_owned() };
    let (scaled, unit) = match seconds {
        s if s < 1e-3 => (s * 1e6, "µs"),
        s if s < 1.0 => (s * 1e3, "ms"),
        s if s < 120.0 => (s, "s"),
        s if s < 7200.0 => (s / 60.0, "min"),
        s if s < 172_800.0 => (s / 3600.0, "h"),
        s => (s / 86_400.0, "days"),
    };
    format!("{} {unit}", digits(scaled))
}

/// A share, in percent.
pub fn percent(share: f64) -> String {
    digits(100.0 * share) + " %"
}

fn digits(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 || size.fract() < 1e-9 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// A bar of this many places, filled to this share.
pub fn bar(share: f64, places: usize) -> String {
    const EIGHTHS: [char; 7] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let eighths = (share.clamp(0.0, 1.0) * places as f64 * 8.0).round() as usize;
    let mut bar = "█".repeat(eighths / 8);
    bar.extend(EIGHTHS.get((eighths % 8).wrapping_sub(1)));
    let empty = places - bar.chars().count().min(places);
    bar + &" ".repeat(empty)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_a_unit() {
        assert_eq!(
            [0.0, 7.0, 1.5, 999.0, 12_345.0, 2.5e6, 3e9].map(short),
            ["0", "7", "1.50", "999", "12.3 k", "2.50 M", "3 G"]
        );
        assert_eq!([0.0, 1023.4, 1536.0, 5e9].map(bytes), ["0 B", "1023 B", "1.50 KiB", "4.66 GiB"]);
        let durations = [0.000_012, 0.004, 1.0, 180.0, 10_800.0, 864_000.0].map(|s| duration(Some(s)));
        assert_eq!(durations, ["12 µs", "4 ms", "1 s", "3 min", "3 h", "10 days"]);
        assert_eq!((duration(None).as_str(), percent(0.125).as_str()), ("–", "12.5 %"));
    }

    #[test]
    fn bars_are_as_long_as_their_places() {
        let bars: Vec<String> = [0.0, 0.05, 0.5, 1.0, 7.0, f64::NAN].iter().map(|share| bar(*share, 4)).collect();
        assert_eq!(bars, ["    ", "▎   ", "██  ", "████", "████", "    "]);
    }
}
