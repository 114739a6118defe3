//! `bit`: operations on the bits of 32-bit numbers. Results are signed.

use mlua::{Lua, Result, Table, Variadic};

/// The number modulo 2^32.
fn word(number: f64) -> u32 {
    let whole = number.round_ties_even().rem_euclid(4_294_967_296.0);
    // The number is within range, or NaN, which becomes zero.
    whole as u64 as u32
}

/// As a signed number.
fn signed(word: u32) -> f64 {
    f64::from(word as i32)
}

/// Functions of one word, and of two.
type One = fn(u32) -> u32;
type Two = fn(u32, u32) -> u32;

/// The library.
///
/// # Errors
/// Those of Lua.
pub(super) fn library(lua: &Lua) -> Result<Table> {
    let library = lua.create_table()?;
    let one: [(&str, One); 3] = [("tobit", |a| a), ("bnot", |a| !a), ("bswap", u32::swap_bytes)];
    for (name, operation) in one {
        library.set(name, lua.create_function(move |_, a: f64| Ok(signed(operation(word(a)))))?)?;
    }
    let many: [(&str, Two); 3] = [("band", |a, b| a & b), ("bor", |a, b| a | b), ("bxor", |a, b| a ^ b)];
    for (name, operation) in many {
        let operation = move |_: &Lua, (first, rest): (f64, Variadic<f64>)| {
            Ok(signed(rest.iter().fold(word(first), |all, &next| operation(all, word(next)))))
        };
        library.set(name, lua.create_function(operation)?)?;
    }
    let shifts: [(&str, Two); 5] = [
        ("lshift", |a, by| a << by),
        ("rshift", |a, by| a >> by),
        ("arshift", |a, by| ((a as i32) >> by) as u32),
        ("rol", u32::rotate_left),
        ("ror", u32::rotate_right),
    ];
    for (name, operation) in shifts {
        let operation = move |_: &Lua, (a, by): (f64, f64)| Ok(signed(operation(word(a), word(by) & 31)));
        library.set(name, lua.create_function(operation)?)?;
    }
    let to_hex = |_: &Lua, (a, digits): (f64, Option<f64>)| {
        let wanted = digits.map_or(8, |digits| word(digits) as i32);
        let digits = format!("{:08x}", word(a));
        let from = 8usize.saturating_sub(wanted.unsigned_abs() as usize);
        let shown = digits.get(from..).unwrap_or_default();
        Ok(if wanted < 0 { shown.to_ascii_uppercase() } else { shown.to_owned() })
    };
    library.set("tohex", lua.create_function(to_hex)?)?;
    Ok(library)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations() {
        let lua = Lua::new();
        lua.globals().set("bit", library(&lua).unwrap()).unwrap();
        for (expression, expected) in [
            ("bit.tobit(0xffffffff)", "-1"),
            ("bit.tobit(2^32 + 5)", "5"),
            ("bit.bnot(0)", "-1"),
            ("bit.band(0xff, 0x0f, 0x05)", "5"),
            ("bit.bor(1, 2, 4)", "7"),
            ("bit.bxor(5, 1)", "4"),
            ("bit.lshift(1, 31)", "-2147483648"),
            ("bit.lshift(1, 32)", "1"),
            ("bit.rshift(-1, 28)", "15"),
            ("bit.arshift(-16, 2)", "-4"),
            ("bit.rol(0x12345678, 12) == bit.tobit(0x45678123)", "true"),
            ("bit.ror(0x12345678, 12) == bit.tobit(0x67812345)", "true"),
            ("bit.bswap(0x12345678) == bit.tobit(0x78563412)", "true"),
            ("bit.tohex(255) .. bit.tohex(255, 4) .. bit.tohex(255, -2)", "000000ff00ffFF"),
        ] {
            let found: String = lua.load(format!("return tostring({expression})")).eval().unwrap();
            assert_eq!(found, expected, "{expression}");
        }
    }
}
