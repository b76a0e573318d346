//! The slow log: commands that took long.

use std::collections::VecDeque;

use parking_lot::Mutex;

/// An entry of the slow log.
#[derive(Clone, Debug)]
pub struct SlowCommand {
    /// Its number.
    pub id: u64,
    /// When it ran, in Unix seconds.
    pub at: u64,
    /// Its duration in microseconds.
    pub micros: u64,
    /// Its words. Long words, and the last of many words, are cut off.
    pub words: Vec<Vec<u8>>,
    /// The client's address.
    pub address: String,
    /// The client's name.
    pub name: String,
}

#[derive(Default)]
struct Log {
    entries: VecDeque<SlowCommand>,
    next: u64,
}

/// The newest entries.
#[derive(Default)]
pub struct SlowLog(Mutex<Log>);

impl SlowLog {
    /// Adds an entry, and drops the oldest beyond `kept`.
    pub fn add(&self, mut command: SlowCommand, kept: usize) {
        let mut log = self.0.lock();
        command.id = log.next;
        log.next += 1;
        log.entries.push_front(command);
        log.entries.truncate(kept);
    }

    /// Returns the newest `n` entries.
    pub fn newest(&self, n: usize) -> Vec<SlowCommand> {
        self.0.lock().entries.iter().take(n).cloned().collect()
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.0.lock().entries.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes all entries.
    pub fn clear(&self) {
        self.0.lock().entries.clear();
    }
}
