//! Cursors of `SCAN`, `HSCAN`, `SSCAN` and `ZSCAN`: numbers for clients, positions in the order of keys for
//! the server.
//!
//! ```text
//!   number = walk (32 bits), step (20 bits)        walk --> the positions of its last steps
//! ```
//!
//! cursors.1. Numbers are below 2^52: clients that keep numbers as doubles hold them exactly.
//! cursors.2. A walk only goes forward, and so it ends. A number leads to the position that it was given out
//!     for, or to none: the walk neither ends early nor passes over keys.
//! cursors.3. A client that repeats one of the last steps gets the same position.
//! cursors.4. The table forgets the walk that was used longest ago once it holds too many walks, or too many
//!     bytes.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};

use parking_lot::Mutex;

/// Walks that the table holds at most.
const WALKS_MAX: usize = 100_000;
/// Bytes of positions that the table holds at most.
const BYTES_MAX: usize = 64 << 20;
/// Steps of a walk whose positions are kept.
const STEPS_KEPT: usize = 4;
const STEP_BITS: u32 = 20;
const STEP_MAX: u32 = (1 << STEP_BITS) - 1;

/// Where a walk goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum From {
    /// At the first key.
    Start,
    /// Behind this key. The number is the cursor that led here.
    Behind(u64, Vec<u8>),
}

struct Walk {
    /// The steps with their positions, oldest first. Never empty.
    steps: VecDeque<(u32, Vec<u8>)>,
    used: u64,
}

#[derive(Default)]
struct Table {
    walks: HashMap<u32, Walk>,
    /// Walks by their last use.
    order: BTreeMap<u64, u32>,
    uses: u64,
    bytes: usize,
    begun: u32,
}

/// The cursors that clients hold.
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

    /// Notes the position of a step, which is the newest of its walk.
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

    /// The step behind this one with this position, in the walk that came from there, if it may be one.
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
    /// The number of the cursor behind a key, in a walk that came from there.
    pub fn number(&self, from: &From, key: &[u8]) -> u64 {
        let mut table = self.table.lock();
        if let From::Behind(before, _) = from
            && let Some(number) = table.following(*before, key)
        {
            return number;
        }
        // Numbers of another server, or of one that ran before, hardly ever name a walk of this one.
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

    /// Where the walk of a cursor goes on. `None` if the cursor was never given out, or its position is not
    /// kept: it is of a server that ran before, its walk was forgotten (cursors.4), or the walk is too far
    /// ahead of it (cursors.2).
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
    fn cursors_1_cursors_2_cursors_3_walks_go_forward_and_skip_nothing() {
        let cursors = Cursors::default();
        let (mut from, mut numbers) = (From::Start, Vec::new());
        for n in 0..10_u32 {
            let number = cursors.number(&from, &n.to_be_bytes());
            assert!(0 < number && number < 1 << 52);
            from = cursors.find(number).unwrap();
            assert_eq!(from, From::Behind(number, n.to_be_bytes().to_vec()));
            numbers.push(number);
        }
        // A step that is repeated has the same cursor; one that goes on elsewhere has a walk of its own.
        let before = cursors.find(numbers[8]).unwrap();
        assert_eq!(cursors.number(&before, &9_u32.to_be_bytes()), numbers[9]);
        let other = cursors.number(&before, b"elsewhere");
        assert!(!numbers.contains(&other));
        assert_eq!(cursors.find(numbers[9]).as_ref(), Some(&from));
        // The last four are kept. Older ones lead nowhere, and so do those that were never given out.
        assert!(numbers[6..].iter().all(|number| cursors.find(*number).is_some()));
        for unknown in [numbers[0], numbers[5], numbers[9] + 1, 7, (1 << 60) + 5, u64::MAX] {
            assert_eq!(cursors.find(unknown), None);
        }
        // Those of a server that ran before, neither.
        assert!(numbers.iter().all(|number| Cursors::default().find(*number).is_none()));
    }

    #[test]
    fn cursors_4_the_table_is_bounded_and_keeps_what_is_used() {
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
