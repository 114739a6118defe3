//! Lines on a terminal, until a key ends it.

use super::frame::{self, Line, Tone};
use crate::failure::Failure;
use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::event::{self, Event, KeyCode, KeyModifiers};
use crossterm::style::{Attribute, Color, Print, ResetColor, SetAttribute, SetForegroundColor};
use crossterm::terminal::{
    self, BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen,
};
use crossterm::{execute, queue};
use forebay_admin::{Rates, Status};
use forebay_env::{Clock, SystemClock};
use std::io::{Stdout, Write};
use std::time::Duration;

const KEYS: &str = "q ends";

/// The terminal as it is while the screen is shown. Dropping it makes the terminal as it was.
struct Terminal(Stdout);

impl Terminal {
    fn enter() -> std::io::Result<Self> {
        terminal::enable_raw_mode()?;
        let mut terminal = Self(std::io::stdout());
        execute!(terminal.0, EnterAlternateScreen, Hide)?;
        Ok(terminal)
    }

    fn draw(&mut self, lines: &[Line]) -> std::io::Result<()> {
        // A terminal that does not know its size is as the first ones were.
        let (columns, rows) =
            Some(terminal::size()?).filter(|(columns, rows)| *columns > 0 && *rows > 0).unwrap_or((80, 24));
        let room = usize::from(rows.saturating_sub(1));
        queue!(self.0, BeginSynchronizedUpdate, MoveTo(0, 0))?;
        for line in lines.iter().take(room) {
            let cut: String = line.text.chars().take(columns.into()).collect();
            match line.tone {
                Tone::Plain => {}
                Tone::Heading => queue!(self.0, SetAttribute(Attribute::Bold))?,
                Tone::Bad => queue!(self.0, SetForegroundColor(Color::Red))?,
            }
            queue!(self.0, Print(cut), ResetColor, SetAttribute(Attribute::Reset))?;
            queue!(self.0, Clear(ClearType::UntilNewLine), Print("\r\n"))?;
        }
        let left = lines.len().saturating_sub(room);
        let more = if left > 0 { format!("{KEYS}; {left} more lines") } else { KEYS.to_owned() };
        queue!(self.0, Clear(ClearType::FromCursorDown), MoveTo(0, rows.saturating_sub(1)), Print(more))?;
        queue!(self.0, Clear(ClearType::UntilNewLine), EndSynchronizedUpdate)?;
        self.0.flush()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = execute!(self.0, LeaveAlternateScreen, Show);
        let _ = terminal::disable_raw_mode();
    }
}

/// Asks once in an interval, and shows the answers.
///
/// # Errors
/// When nobody answers, or there is no terminal any more.
pub fn show(interval: Duration, ask: impl Fn() -> Result<Status, Failure>) -> Result<(), Failure> {
    let failed = |error| Failure::io("using the terminal")(error);
    // Before the screen is taken: who answers nothing is told so on the screen that was there.
    let mut before = ask()?;
    let mut lines = frame::lines(&before, &Rates::default());
    let clock = SystemClock::new();
    let mut terminal = Terminal::enter().map_err(failed)?;
    loop {
        terminal.draw(&lines).map_err(failed)?;
        let until = clock.now().saturating_add(u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX));
        loop {
            let left = Duration::from_nanos(until.saturating_sub(clock.now()));
            if left.is_zero() || !event::poll(left).map_err(failed)? {
                break;
            }
            match event::read().map_err(failed)? {
                Event::Key(key) if ends(key.code, key.modifiers) => return Ok(()),
                Event::Resize(..) => terminal.draw(&lines).map_err(failed)?,
                _ => {}
            }
        }
        let status = ask()?;
        lines = frame::lines(&status, &Rates::between(&before, &status));
        before = status;
    }
}

fn ends(code: KeyCode, modifiers: KeyModifiers) -> bool {
    match code {
        KeyCode::Esc | KeyCode::Char('q') => true,
        KeyCode::Char('c' | 'd') => modifiers.contains(KeyModifiers::CONTROL),
        _ => false,
    }
}
