//! Lines on a terminal, until a key or a signal ends the screen.
//!
//! A thread of its own asks, so that keys also work while nobody answers.

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
use forebay_env::{Clock, Nanos, SystemClock, thread};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use std::io::{Stdout, Write};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::Duration;

const KEYS: &str = "q ends";
/// Longest wait for a key, before signals and answers are looked at.
const LOOK: Duration = Duration::from_millis(50);

type Answer = Result<Status, Failure>;

/// The terminal while the screen is shown. Dropping it restores the terminal.
struct Terminal(Stdout);

impl Terminal {
    fn enter() -> std::io::Result<Self> {
        terminal::enable_raw_mode()?;
        let mut terminal = Self(std::io::stdout());
        execute!(terminal.0, EnterAlternateScreen, Hide)?;
        Ok(terminal)
    }

    fn draw(&mut self, lines: &[Line]) -> std::io::Result<()> {
        // A terminal that does not know its size gets that of the first terminals.
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

/// What is shown: the last status that came, and whether a later one did not.
struct Shown {
    last: Status,
    lines: Vec<Line>,
}

impl Shown {
    fn new(first: Status) -> Self {
        Self { lines: frame::lines(&first, &Rates::default()), last: first }
    }

    fn take(&mut self, answer: Answer) {
        match answer {
            Ok(status) => {
                self.lines = frame::lines(&status, &Rates::between(&self.last, &status));
                self.last = status;
            }
            Err(failure) => {
                // The current rates of the process are unknown.
                self.lines = frame::lines(&self.last, &Rates::default());
                self.lines.insert(0, frame::no_answer(&failure.message));
            }
        }
    }
}

/// A thread that asks when it is told to. Nobody waits for the thread to end, as an answer may take long.
struct Asker {
    wanted: SyncSender<()>,
    answers: Receiver<Answer>,
    is_asked: bool,
}

impl Asker {
    fn start(ask: impl Fn() -> Answer + Send + 'static) -> std::io::Result<Self> {
        let ((wanted, wishes), (answer, answers)) = (sync_channel(1), sync_channel(1));
        // Each ends when the other has.
        thread::spawn("ask", move || while wishes.recv().is_ok() && answer.send(ask()).is_ok() {})?;
        Ok(Self { wanted, answers, is_asked: false })
    }

    /// Makes the thread ask, unless it is asking.
    fn ask(&mut self) {
        self.is_asked = self.is_asked || self.wanted.try_send(()).is_ok();
    }

    /// Returns the answer, if it has come.
    fn answer(&mut self) -> std::io::Result<Option<Answer>> {
        match self.answers.try_recv() {
            Ok(answer) => {
                self.is_asked = false;
                Ok(Some(answer))
            }
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(std::io::Error::other("the thread that asks has ended")),
        }
    }
}

/// Asks once in an interval, and shows the answers. If no answer comes any more, it shows that, and continues to ask. A
/// signal ends the process as it would have without the screen, after the terminal is restored.
///
/// # Errors
/// When nobody answers the first time, or there is no terminal any more.
pub fn show(interval: Duration, ask: impl Fn() -> Answer + Send + 'static) -> Result<(), Failure> {
    let failed = |error| Failure::io("using the terminal")(error);
    // Ask before the screen is taken: the error of a process that does not answer goes to the old screen.
    let mut shown = Shown::new(ask()?);
    let mut asker = Asker::start(ask).map_err(Failure::io("starting a thread"))?;
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(Failure::io("preparing for signals"))?;
    let mut terminal = Terminal::enter().map_err(failed)?;
    let ended = run(interval, &mut shown, &mut asker, &mut signals, &mut terminal);
    drop(terminal);
    match ended {
        Ok(Some(signal)) => emulate_default_handler(signal).map_err(Failure::io("ending")),
        ended => {
            // A terminal that is gone may also have sent a signal.
            signals.pending().try_for_each(emulate_default_handler).map_err(Failure::io("ending"))?;
            ended.map(drop).map_err(failed)
        }
    }
}

/// Runs until a key, or the signal that is returned, ends the screen.
fn run(
    interval: Duration,
    shown: &mut Shown,
    asker: &mut Asker,
    signals: &mut Signals,
    terminal: &mut Terminal,
) -> std::io::Result<Option<i32>> {
    let clock = SystemClock::new();
    let after = |now: Nanos| now.saturating_add(Nanos::try_from(interval.as_nanos()).unwrap_or(Nanos::MAX));
    let mut due = after(clock.now());
    terminal.draw(&shown.lines)?;
    loop {
        if let Some(signal) = signals.pending().next() {
            return Ok(Some(signal));
        }
        if let Some(answer) = asker.answer()? {
            shown.take(answer);
            terminal.draw(&shown.lines)?;
            due = after(clock.now());
        }
        let left = Duration::from_nanos(due.saturating_sub(clock.now()));
        if left.is_zero() {
            asker.ask();
        }
        let look = if asker.is_asked { LOOK } else { left.min(LOOK) };
        if !event::poll(look)? {
            continue;
        }
        match event::read()? {
            Event::Key(key) if ends(key.code, key.modifiers) => return Ok(None),
            Event::Resize(..) => terminal.draw(&shown.lines)?,
            _ => {}
        }
    }
}

fn ends(code: KeyCode, modifiers: KeyModifiers) -> bool {
    match code {
        KeyCode::Esc | KeyCode::Char('q') => true,
        KeyCode::Char('c' | 'd') => modifiers.contains(KeyModifiers::CONTROL),
        _ => false,
    }
}
