//! Waits for a simulation, and says so if it gets nowhere.
//!
//! ```text
//!   runner.rs: thread --outcome--> wait --none for long, and no operation more--> Stuck: name, operations
//! ```
//!
//! WT1. A simulation that does not end, and begins no further operation for [`PATIENCE`], is told by its name, with the
//!      command that replays it. One that goes on is waited for as long as it takes.

use std::fmt;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

/// One operation, and what follows the last, takes some milliseconds. The machine may be busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A simulation that gets nowhere.
#[derive(Debug)]
pub(crate) struct Stuck {
    name: String,
    ops: u64,
    patience: Duration,
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stuck { name, ops, patience } = self;
        write!(f, "{name} gets nowhere: it has begun {ops} operations, and nothing more in {patience:?}")
    }
}

/// Waits for what a thread sends when it has ended (WT1). `progress`: the operations that it has begun.
///
/// # Panics
/// The thread has ended without a word.
pub(crate) fn wait<T>(
    name: &str,
    outcome: &Receiver<T>,
    mut progress: impl FnMut() -> u64,
    patience: Duration,
) -> Result<T, Stuck> {
    let mut before = progress();
    loop {
        match outcome.recv_timeout(patience) {
            Ok(outcome) => return Ok(outcome),
            Err(RecvTimeoutError::Disconnected) => panic!("{name} has ended without an outcome"),
            Err(RecvTimeoutError::Timeout) => {
                let ops = progress();
                if ops == before {
                    return Err(Stuck { name: name.to_owned(), ops, patience });
                }
                before = ops;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    const SHORT: Duration = Duration::from_millis(2);

    #[test]
    fn wt1_a_simulation_that_never_ends_is_told() {
        let (never, outcome) = channel::<()>();
        let stuck = wait("seed 17 (replay 17)", &outcome, || 3, SHORT).unwrap_err();
        let told = "seed 17 (replay 17) gets nowhere: it has begun 3 operations, and nothing more in 2ms";
        assert_eq!(stuck.to_string(), told);
        drop(never);
    }

    #[test]
    fn wt1_one_that_stands_still_after_a_while_is_told() {
        let (end, outcome) = channel();
        let mut looks = 0;
        let progress = || {
            looks += 1;
            if looks == 6 {
                end.send(()).expect("somebody waits");
            }
            looks.min(3)
        };
        assert_eq!(wait("seed 17", &outcome, progress, SHORT).unwrap_err().ops, 3);
    }

    #[test]
    fn wt1_one_that_goes_on_is_waited_for() {
        let (end, outcome) = channel();
        let (mut looks, mut end) = (0, Some(end));
        let progress = || {
            looks += 1;
            if looks == 5 {
                end.take().into_iter().for_each(|end| end.send("done").expect("somebody waits"));
            }
            looks
        };
        assert_eq!(wait("seed 17", &outcome, progress, SHORT).unwrap(), "done");
        assert_eq!(looks, 5);
    }
}
