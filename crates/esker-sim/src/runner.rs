//! Runs simulations, each in its own thread, and turns panics into failures. A simulation that hangs
//! ends the process (watch.rs), because it cannot be stopped and no other one can run beside it.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use esker_env::BrokenSync;
use esker_world::failure::{Failure, caught};
use esker_world::generate::{from_bytes, generate};
use esker_world::op::{End, Op, Opening, Restart};
use esker_world::setting;
use esker_world::watch::{HANG_TIMEOUT, wait};
use esker_world::world::{Tally, World};

/// Faults injected into a run.
#[derive(Clone, Copy, Default)]
pub struct Sabotage {
    /// Broken syncs of the disk.
    pub disk: Option<BrokenSync>,
    /// Called first in the thread of the run.
    pub engine: Option<fn()>,
}

/// Runs `work` in a new thread. `done` counts operations for messages, and `name` identifies a run that
/// hangs.
///
/// # Errors
/// `work` panicked.
pub fn alone<T: Send + 'static>(
    name: &str,
    work: impl FnOnce(&AtomicU64) -> T + Send + 'static,
) -> Result<T, Failure> {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let done = Arc::new(AtomicU64::new(0));
    let count = done.clone();
    let (sender, receiver) = channel();
    let body = move || {
        // Free what earlier runs left to the epochs, so that every run starts in the same state.
        esker::settle_garbage();
        let outcome = caught(|| work(&count));
        sender.send(outcome).unwrap_or_else(|_| unreachable!("it is waited for"));
    };
    let thread = std::thread::Builder::new().name("simulation".to_owned()).spawn(body);
    let thread = thread.expect("a thread for the simulation");
    let outcome = wait(name, &receiver, || done.load(Ordering::Relaxed), HANG_TIMEOUT);
    let outcome = outcome.unwrap_or_else(|stuck| give_up(&stuck));
    // Thread-local state must be gone before the next run.
    thread.join().expect("panics are caught inside");
    outcome.map_err(|failure| Failure { ops: done.load(Ordering::Relaxed), ..failure })
}

/// Ends the process. A panic would not end the stuck thread, and a test would capture the output of a macro.
fn give_up(stuck: &Failure) -> ! {
    let _ignored = writeln!(std::io::stderr(), "{stuck}");
    std::process::abort()
}

/// Runs operations, and ends with a check, a clean close and an opening. With `inspects_all`, the offline
/// tools are tested before every opening.
///
/// # Errors
/// A disagreement with the model.
pub(crate) fn run_ops(
    name: &str,
    seed: u64,
    first: Opening,
    ops: Vec<Op>,
    sabotage: Sabotage,
    inspects_all: bool,
) -> Result<Tally, Failure> {
    alone(name, move |done| {
        if let Some(engine) = sabotage.engine {
            engine();
        }
        let mut world = new_world(seed, sabotage.disk);
        world.mode.inspects_all = inspects_all;
        world.start_seed(first);
        for op in &ops {
            done.fetch_add(1, Ordering::Relaxed);
            world.perform(op);
        }
        let last = Restart { end: End::Close, mishaps: Vec::new(), opening: first };
        world.perform(&Op::Mend(last.clone()));
        world.verify_all();
        world.perform(&Op::Restart(last));
        world.verify_all();
        world.tally()
    })
}

/// Creates the world of a seed, before its first process.
fn new_world(seed: u64, broken: Option<BrokenSync>) -> World {
    let mut world = World::new(seed, broken);
    world.watch_seals();
    if setting::has_plain_disk(seed) {
        world.be_plain();
    }
    world
}

/// Runs a seed.
///
/// # Errors
/// A disagreement with the model.
pub fn run_seed(seed: u64, ops: usize, sabotage: Sabotage) -> Result<Tally, Failure> {
    let name = format!("seed {seed} (esker-sim replay {seed} --ops {ops})");
    let (first, ops) = generate(seed, ops);
    run_ops(&name, seed, first, ops, sabotage, false)
}

/// Runs the operations of a byte string.
///
/// # Errors
/// A disagreement with the model.
pub fn run_bytes(bytes: &[u8], sabotage: Sabotage) -> Result<Tally, Failure> {
    let (first, ops) = from_bytes(bytes);
    let name = format!("byte string {}", bytes.escape_ascii());
    run_ops(&name, setting::seed_of_bytes(bytes), first, ops, sabotage, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_in_four_has_no_direct_files() {
        let is_plain = |seed: &u64| !new_world(*seed, None).gives_direct_files();
        assert_eq!((0..16).filter(is_plain).collect::<Vec<_>>(), [1, 6, 11, 12]);
    }

    #[test]
    fn what_bytes_make_runs_in_the_world_of_their_number() {
        let bytes = [0; 6];
        let (first, ops) = from_bytes(&bytes);
        // Concurrent tests delay removals of files, so the order of calls may differ.
        let calls = |run: Result<Tally, Failure>| run.unwrap().fs_calls;
        let of_seed = |seed| calls(run_ops("a test", seed, first, ops.clone(), Sabotage::default(), false));
        let of_bytes = calls(run_bytes(&bytes, Sabotage::default()));
        assert_eq!(of_bytes, of_seed(6));
        assert_ne!(of_bytes, of_seed(0));
    }
}
