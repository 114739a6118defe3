//! Progress of long commands on standard error, where that is a terminal.

use forebay::Step;
use indicatif::{ProgressBar, ProgressStyle};

/// A line with what is done, the rate, and, where the end is known, the time left.
pub struct Progress(ProgressBar);

impl Progress {
    /// Begins with nothing done, of `total` bytes where that is known.
    pub fn of_bytes(doing: &'static str, total: Option<u64>) -> Self {
        let template = match total {
            Some(_) => "{prefix} {bytes} of {total_bytes} ({percent} %), {bytes_per_sec}, {eta} left {msg}",
            None => "{prefix} {bytes}, {bytes_per_sec}, since {elapsed} {msg}",
        };
        let bar = total.filter(|total| *total > 0).map_or_else(ProgressBar::no_length, ProgressBar::new);
        // A template that is wrong leaves the usual style, which a test excludes.
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_prefix(doing);
        Self(bar)
    }

    /// Begins with nothing done, where the total comes with each step.
    pub fn of_steps(doing: &'static str) -> Self {
        Self::of_bytes(doing, Some(1))
    }

    /// So much is done, of so much.
    pub fn step(&self, step: Step) {
        self.0.set_length(step.of_bytes);
        self.0.set_position(step.bytes);
    }

    /// So many bytes are done.
    pub fn set(&self, bytes: u64, message: String) {
        self.0.set_position(bytes);
        self.0.set_message(message);
    }

    /// Prints a line on standard error, above.
    pub fn complain(&self, text: &str) {
        self.0.suspend(|| crate::output::complain(text));
    }

    /// Removes the line.
    pub fn clear(&self) {
        self.0.finish_and_clear();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}
