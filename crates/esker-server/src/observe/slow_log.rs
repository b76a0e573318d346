//! Commands that took long.

use std::collections::VecDeque;

use parking_lot::Mutex;

/// A command that took long.
#[derive(Clone, Debug)]
pub struct SlowCommand {
    /// Its number.
    pub id: u64,
    /// When it was, in seconds since 1970.
    pub at: u64,
    /// How long it took, in microseconds.
    pub micros: u64,
    /// Its words, the long ones and the last of many cut off.
    pub words: Vec<Vec<u8>>,
    /// Where it came from.
    pub address: String,
    /// The name of its connection.
    pub name: String,
}

#[derive(Default)]
struct Log {
    entries: VecDeque<SlowCommand>,
    next: u64,
}

/// The newest of them.
#[derive(Default)]
pub struct SlowLog(Mutex<Log>);

impl SlowLog {
    /// Adds an entry. The oldest go beyond the length that is kept.
    pub fn add(&self, mut command: SlowCommand, kept: usize) {
        let mut log = self.0.lock();
        command.id = log.next;
        log.next += 1;
        log.entries.push_front(command);
        log.entries.truncate(kept);
    }

    /// The newest ones.
    pub fn newest(&self, n: usize) -> Vec<SlowCommand> {
        self.0.lock().entries.iter().take(n).cloned().collect()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.lock().entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets all.
    pub fn clear(&self) {
        self.0.lock().entries.clear();
    }
}
