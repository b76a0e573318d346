//! Shows a progress bar on standard error if it is a terminal.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use esker::Event;
use indicatif::{ProgressBar, ProgressStyle};

use crate::output;

/// An opening that takes longer shows its progress.
const SHOWN_AFTER: Duration = Duration::from_secs(1);
/// Time between two lines if standard error is not a terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// The progress bar and the clock of a running command.
pub(crate) struct Progress {
    bar: ProgressBar,
    start: Instant,
}

impl Progress {
    /// Counts bytes. Without a total (a pipe), shows the bytes processed.
    pub(crate) fn bytes(total: Option<u64>) -> Self {
        let template = match total {
            Some(_) => "{bar:30} {bytes}/{total_bytes} {bytes_per_sec}, {eta} left {msg}",
            None => "{spinner} {bytes} {bytes_per_sec} {msg}",
        };
        Self::new(total, template)
    }

    /// Counts rows.
    pub(crate) fn rows(total: Option<u64>) -> Self {
        let template = match total {
            Some(_) => "{bar:30} {human_pos}/{human_len} rows {per_sec}, {eta} left",
            None => "{spinner} {human_pos} rows {per_sec}",
        };
        Self::new(total, template)
    }

    fn new(total: Option<u64>, template: &str) -> Self {
        let bar = total.map_or_else(ProgressBar::no_length, ProgressBar::new);
        bar.set_style(ProgressStyle::with_template(template).expect("the templates above are valid"));
        Progress { bar, start: Instant::now() }
    }

    pub(crate) fn set(&self, position: u64, message: impl FnOnce() -> String) {
        self.bar.set_position(position);
        if !self.bar.is_hidden() {
            self.bar.set_message(message());
        }
    }

    /// Prints a line on standard error without disturbing the bar.
    pub(crate) fn note(&self, text: &str) {
        self.bar.suspend(|| output::print_message(text));
    }

    /// Removes the bar and returns the elapsed time.
    pub(crate) fn finish(self) -> Duration {
        self.bar.finish_and_clear();
        self.start.elapsed()
    }
}

/// Shows the progress of a long opening: a bar, or a line now and then.
#[derive(Clone, Default)]
pub(crate) struct OpeningProgress(Arc<Mutex<Shown>>);

#[derive(Default)]
struct Shown {
    bar: Option<Progress>,
    /// Time of the opening at the last line.
    line_at: Duration,
}

impl OpeningProgress {
    /// Takes note of an event.
    pub(crate) fn note(&self, event: &Event) {
        match event {
            Event::Opening { done_bytes, total_bytes, time, .. } if *time >= SHOWN_AFTER => {
                let mut shown = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                let line_at = shown.line_at;
                let bar = shown.bar.get_or_insert_with(|| Progress::bytes(Some(*total_bytes)));
                bar.set(*done_bytes, || "of the log".to_owned());
                if bar.bar.is_hidden() && *time >= line_at + LINE_EVERY {
                    output::print_message(format_args!("esker: {event}"));
                    shown.line_at = *time;
                }
            }
            Event::Opened { .. } => self.finish(),
            _ => {}
        }
    }

    /// Removes the bar.
    pub(crate) fn finish(&self) {
        let mut shown = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        shown.bar.take().map(Progress::finish);
    }
}
