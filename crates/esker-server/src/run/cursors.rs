//! Cursors of `SCAN`, `HSCAN`, `SSCAN` and `ZSCAN`. A client sees a number; the server maps it to a position
//! in the order of keys.
//!
//! ```text
//!   number = walk (32 bits), step (20 bits)        walk --> the positions of its last steps
//! ```
//!
//! - Numbers are below 2^52, so that clients that store numbers as doubles represent them exactly.
//! - A walk only moves forward, so it ends. A number leads to the position for which it was issued, or to
//!   none. So the walk neither ends early nor skips keys.
//! - A client that repeats one of the last steps gets the same position.
//! - The table drops the least recently used walk once it holds too many walks, or too many bytes.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};

use parking_lot::Mutex;

/// Maximum number of walks in the table.
const WALKS_MAX: usize = 100_000;
/// Maximum bytes of positions in the table.
const BYTES_MAX: usize = 64 << 20;
/// Number of latest steps per walk whose positions are kept.
const STEPS_KEPT: usize = 4;
const STEP_BITS: u32 = 20;
const STEP_MAX: u32 = (1 << STEP_BITS) - 1;

/// Position at which a walk continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum From {
    /// At the first key.
    Start,
    /// After this key. The number is the cursor that led here.
    Behind(u64, Vec<u8>),
}

struct Walk {
    /// Step numbers with their positions, oldest first. Never empty.
    steps: VecDeque<(u32, Vec<u8>)>,
    used: u64,
}

#[derive(Default)]
struct Table {
    walks: HashMap<u32, Walk>,
    /// Walks ordered by their last use.
    order: BTreeMap<u64, u32>,
    uses: u64,
    bytes: usize,
    begun: u32,
}

/// Cursors held by clients.
#[derive(Default)]
pub struct Cursors {
    table: Mutex<Table>,
    hashing: RandomState,
}

fn number_of(walk: u32, step: u32) -> u64 {
    u64::from(walk) << STEP_BITS | u64::from(step)
}

impl Table {
    fn use_walk(&mut self, number: u32) {
        self.uses += 1;
        if let Some(walk) = self.walks.get_mut(&number) {
            self.order.remove(&walk.used);
            walk.used = self.uses;
            self.order.insert(self.uses, number);
        }
    }

    /// Records the position of a step, which becomes the newest step of its walk.
    fn note(&mut self, number: u32, step: u32, key: &[u8]) {
        let walk = self.walks.entry(number).or_insert_with(|| Walk { steps: VecDeque::new(), used: 0 });
        walk.steps.push_back((step, key.to_vec()));
        self.bytes += key.len();
        if walk.steps.len() > STEPS_KEPT {
            self.bytes -= walk.steps.pop_front().map_or(0, |step| step.1.len());
        }
        self.use_walk(number);
        while self.walks.len() > WALKS_MAX || self.bytes > BYTES_MAX && self.walks.len() > 1 {
            let Some((_, oldest)) = self.order.pop_first() else { return };
            let steps = self.walks.remove(&oldest).map(|walk| walk.steps).unwrap_or_default();
            self.bytes -= steps.iter().map(|step| step.1.len()).sum::<usize>();
        }
    }

    /// Returns the cursor of the step after `number` if its position is `key`. `None` if the walk is unknown
    /// or went elsewhere from there.
    fn following(&mut self, number: u64, key: &[u8]) -> Option<u64> {
        let (number, step) = ((number >> STEP_BITS) as u32, number as u32 & STEP_MAX);
        let walk = self.walks.get(&number)?;
        if let Some(known) = walk.steps.iter().find(|known| known.0 == step + 1) {
            return (known.1 == key).then(|| number_of(number, step + 1));
        }
        if walk.steps.back()?.0 != step || step == STEP_MAX {
            return None;
        }
        self.note(number, step + 1, key);
        Some(number_of(number, step + 1))
    }
}

impl Cursors {
    /// Returns the number of the cursor after `key`, in the walk that came from `from`.
    pub fn number(&self, from: &From, key: &[u8]) -> u64 {
        let mut table = self.table.lock();
        if let From::Behind(before, _) = from
            && let Some(number) = table.following(*before, key)
        {
            return number;
        }
        // Numbers of walks are random, so that cursors of another server or an earlier run rarely match one.
        let walk = loop {
            table.begun = table.begun.wrapping_add(1);
            let walk = self.hashing.hash_one(table.begun) as u32;
            if walk != 0 && !table.walks.contains_key(&walk) {
                break walk;
            }
        };
        table.note(walk, 1, key);
        number_of(walk, 1)
    }

    /// Returns where the walk of a cursor continues. `None` if the cursor was never issued or its position is
    /// not kept: an earlier run of the server issued it, its walk was dropped, or the walk is too
    /// far ahead of it.
    pub fn find(&self, number: u64) -> Option<From> {
        if number == 0 {
            return Some(From::Start);
        }
        let mut table = self.table.lock();
        let walk = u32::try_from(number >> STEP_BITS).ok()?;
        table.use_walk(walk);
        let step = number as u32 & STEP_MAX;
        let known = table.walks.get(&walk)?.steps.iter().find(|known| known.0 == step)?;
        Some(From::Behind(number, known.1.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_3_walks_go_forward_and_skip_nothing() {
        let cursors = Cursors::default();
        let (mut from, mut numbers) = (From::Start, Vec::new());
        for n in 0..10_u32 {
            let number = cursors.number(&from, &n.to_be_bytes());
            assert!(0 < number && number < 1 << 52);
            from = cursors.find(number).unwrap();
            assert_eq!(from, From::Behind(number, n.to_be_bytes().to_vec()));
            numbers.push(number);
        }
        // A repeated step gets the same cursor. A step to another position starts a new walk.
        let before = cursors.find(numbers[8]).unwrap();
        assert_eq!(cursors.number(&before, &9_u32.to_be_bytes()), numbers[9]);
        let other = cursors.number(&before, b"elsewhere");
        assert!(!numbers.contains(&other));
        assert_eq!(cursors.find(numbers[9]).as_ref(), Some(&from));
        // The last four are kept. Older cursors lead nowhere, and neither do cursors that were never issued.
        assert!(numbers[6..].iter().all(|number| cursors.find(*number).is_some()));
        for unknown in [numbers[0], numbers[5], numbers[9] + 1, 7, (1 << 60) + 5, u64::MAX] {
            assert_eq!(cursors.find(unknown), None);
        }
        // Cursors of an earlier run of the server lead nowhere either.
        assert!(numbers.iter().all(|number| Cursors::default().find(*number).is_none()));
    }

    #[test]
    fn the_table_is_bounded_and_keeps_what_is_used() {
        let cursors = Cursors::default();
        let mine = cursors.number(&From::Start, b"mine");
        for n in 0..2 * WALKS_MAX as u32 {
            cursors.number(&From::Start, &n.to_be_bytes());
            if n % 1000 == 0 {
                assert_eq!(cursors.find(mine), Some(From::Behind(mine, b"mine".to_vec())));
            }
        }
        assert_eq!(cursors.table.lock().walks.len(), WALKS_MAX);
        let long = vec![b'k'; BYTES_MAX / 8];
        let first = cursors.number(&From::Start, &long);
        (0..8).for_each(|_| assert_ne!(cursors.number(&From::Start, &long), first));
        assert_eq!(cursors.find(first), None);
        let table = cursors.table.lock();
        assert!(table.bytes <= BYTES_MAX && table.order.len() == table.walks.len());
    }
}
