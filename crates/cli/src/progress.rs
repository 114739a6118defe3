//! Progress of long commands on standard error, where that is a terminal.

use forebay::Step;
use forebay_workload::Progress as Phase;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A line with the work done, the rate, and, where the end is known, the time left.
pub struct Progress(ProgressBar);

impl Progress {
    /// Begins with nothing done, of `total` bytes where that is known.
    pub fn of_bytes(doing: &'static str, total: Option<u64>) -> Self {
        let template = match total {
            Some(_) => "{prefix} {bytes} of {total_bytes} ({percent} %), {bytes_per_sec}, {eta} left {msg}",
            None => "{prefix} {bytes}, {bytes_per_sec}, since {elapsed} {msg}",
        };
        let bar = total.filter(|total| *total > 0).map_or_else(ProgressBar::no_length, ProgressBar::new);
        // An invalid template leaves the usual style; a test excludes that.
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

    /// Shows that this step is done.
    pub fn step(&self, step: Step) {
        self.0.set_length(step.of_bytes);
        self.0.set_position(step.bytes);
    }

    /// Shows that this many bytes are done.
    pub fn set(&self, bytes: u64, message: String) {
        self.0.set_position(bytes);
        self.0.set_message(message);
    }

    /// Prints a line on standard error, above the progress.
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

/// How often progress is shown, times a second.
const REDRAWS: u8 = 5;

/// Progress of the phases of a benchmark, with a bar where the amount of work is known.
pub struct PhaseProgress {
    /// The phase, and what shows it.
    shown: Option<(String, ProgressBar)>,
}

impl PhaseProgress {
    /// Makes a progress that shows nothing yet.
    pub fn new() -> Self {
        Self { shown: None }
    }

    /// Shows the progress of a phase.
    pub fn show(&mut self, progress: &Phase<'_>) {
        let Phase { name, done, planned, .. } = *progress;
        if self.shown.as_ref().is_none_or(|(phase, _)| phase != name) {
            self.clear();
            let form = match planned {
                0 => "{msg:<20} {spinner} {human_pos}, {per_sec}, {elapsed}",
                _ => "{msg:<20} {wide_bar:.cyan/dim} {percent:>3} %  {human_pos} of {human_len}, {per_sec}, {eta} left",
            };
            let bar = ProgressBar::with_draw_target(Some(planned), ProgressDrawTarget::stderr_with_hz(REDRAWS));
            bar.set_style(ProgressStyle::with_template(form).unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.set_message(name.to_owned());
            self.shown = Some((name.to_owned(), bar));
        }
        if let Some((_, bar)) = &self.shown {
            bar.set_position(done);
        }
    }

    /// Removes the line before something else is printed.
    pub fn clear(&mut self) {
        if let Some((_, bar)) = self.shown.take() {
            bar.finish_and_clear();
        }
    }
}
