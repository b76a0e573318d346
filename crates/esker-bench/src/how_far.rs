//! Tells the runner how far a long step has come, so that a time-out can say it.
//!
//!   load --items done--> HowFar --a Message now and then--> runner
//!
//! bench_how_far.1. It tells no more than once in a while, so that it costs the step nothing, and once more at the end. It gives no more time: bench_runner.5 of the runner.

use std::cell::RefCell;
use std::io::Write;
use std::rc::Rc;
use std::time::{Duration, Instant};

use esker_bench_api::Failure;
use esker_bench_api::results::Message;

const TELL_EVERY: Duration = Duration::from_secs(1);

/// Where a child's messages go.
pub(crate) type Out = Rc<RefCell<Box<dyn Write>>>;

/// Writes one message.
pub(crate) fn send(out: &Out, message: &Message) -> Result<(), Failure> {
    let line = serde_json::to_string(message).map_err(Failure::engine)?;
    let mut out = out.borrow_mut();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(Failure::engine)
}

/// See the module.
pub(crate) struct HowFar {
    out: Out,
    what: &'static str,
    all: u64,
    told: Instant,
}

impl HowFar {
    /// Of a step that makes `all` of `what` and begins now.
    pub(crate) fn new(out: Out, what: &'static str, all: u64) -> Self {
        Self { out, what, all, told: Instant::now() }
    }

    /// Says at `now` that `done` are done.
    pub(crate) fn at(&mut self, done: u64, now: Instant) -> Result<(), Failure> {
        if done < self.all && now.duration_since(self.told) < TELL_EVERY {
            return Ok(());
        }
        self.told = now;
        send(&self.out, &Message::Progress(format!("{done} of {} {} written", self.all, self.what)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorder::tests::Sent;

    #[test]
    fn bench_how_far_1_it_tells_now_and_then_and_at_the_end() {
        let sent = Sent::default();
        let mut how_far = HowFar::new(Rc::new(RefCell::new(Box::new(sent.clone()))), "items", 100);
        let start = Instant::now();
        for (done, after_ms) in [(10, 0), (20, 1500), (30, 1600), (40, 3000), (100, 3001)] {
            how_far.at(done, start + Duration::from_millis(after_ms)).unwrap();
        }
        let told = [20, 40, 100].map(|done| format!("{done} of 100 items written"));
        assert_eq!(sent.progress(), told);
    }
}
