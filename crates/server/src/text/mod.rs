//! Text that clients send and read: numbers, patterns, words of a line, and bytes made safe to show.

pub mod decimal;
pub mod hexadecimal;
pub mod number;
pub mod pattern;
pub mod shown;
pub mod words;
