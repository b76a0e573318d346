//! Sends the progress of a long step to the runner, which quotes it after a time-out.
//!
//!   load --items done--> StepProgress --a Message at intervals--> runner
//!
//! It sends at most one message per interval, so that its cost is negligible, and one at the end. Messages do
//! not extend the time.

use std::cell::RefCell;
use std::io::Write;
use std::rc::Rc;
use std::time::{Duration, Instant};

use esker_bench_api::results::Message;
use esker_bench_api::{Failure, Result};

const SEND_EVERY: Duration = Duration::from_secs(1);

/// Output for a child's messages.
pub(crate) type Out = Rc<RefCell<Box<dyn Write>>>;

/// Writes one message.
pub(crate) fn send(out: &Out, message: &Message) -> Result<()> {
    let line = serde_json::to_string(message)?;
    let mut out = out.borrow_mut();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(Failure::engine)
}

/// Sender of the progress of one step.
pub(crate) struct StepProgress {
    out: Out,
    what: &'static str,
    all: u64,
    sent: Instant,
}

impl StepProgress {
    /// Begins a step that writes `all` of `what`.
    pub(crate) fn new(out: Out, what: &'static str, all: u64) -> Self {
        Self { out, what, all, sent: Instant::now() }
    }

    /// Reports at `now` that `done` are done.
    pub(crate) fn at(&mut self, done: u64, now: Instant) -> Result<()> {
        if done < self.all && now.duration_since(self.sent) < SEND_EVERY {
            return Ok(());
        }
        self.sent = now;
        send(&self.out, &Message::Progress(format!("{done} of {} {} written", self.all, self.what)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorder::tests::Sent;

    #[test]
    fn it_sends_at_intervals_and_at_the_end() {
        let sent = Sent::default();
        let mut step_progress =
            StepProgress::new(Rc::new(RefCell::new(Box::new(sent.clone()))), "items", 100);
        let start = Instant::now();
        for (done, after_ms) in [(10, 0), (20, 1500), (30, 1600), (40, 3000), (100, 3001)] {
            step_progress.at(done, start + Duration::from_millis(after_ms)).unwrap();
        }
        let expected = [20, 40, 100].map(|done| format!("{done} of 100 items written"));
        assert_eq!(sent.progress(), expected);
    }
}
