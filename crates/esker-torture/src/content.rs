//! The bytes of a file or device: the durable ones, and what a power loss may leave of the others.
//!
//! ```text
//!   write, set_len --> pending --sync--> durable
//!                        |--current: visible to the running system
//!                        `--power_loss(rng): a possible state after a power loss
//! ```
//!
//! - After a power loss, each sector (512 or 4096 bytes) with unsynced writes contains the first n
//!   of them, for a separate n per sector: a cache may write back its current contents at any time.
//! - Lengths survive as a prefix of their changes. Bytes within a surviving length that no write reached are
//!   zero.

use std::collections::HashMap;

use fastrand::Rng;

/// Sizes of the units that disks write atomically.
const SECTORS: [usize; 2] = [512, 4096];

/// The bytes of a file or device.
#[derive(Clone, Debug, Default)]
pub(crate) struct Content {
    durable: Vec<u8>,
    /// Each with its position in the sequence of events.
    pending: Vec<(usize, ByteChange)>,
}

#[derive(Clone, Debug)]
enum ByteChange {
    Write(usize, Vec<u8>),
    SetLen(usize),
}

/// Which pending changes survive.
enum Survivors {
    None,
    All,
    /// Those before this one, and a part of it.
    Prefix(usize),
    /// A separate number for each sector.
    Sectors,
}

impl Content {
    /// Creates durable content.
    pub(crate) fn durable(durable: Vec<u8>) -> Self {
        Content { durable, pending: Vec::new() }
    }

    /// Records a write at a position of the sequence of events.
    pub(crate) fn write(&mut self, at: usize, offset: usize, bytes: Vec<u8>) {
        self.pending.push((at, ByteChange::Write(offset, bytes)));
    }

    /// Records a change of the length.
    pub(crate) fn set_len(&mut self, at: usize, len: usize) {
        self.pending.push((at, ByteChange::SetLen(len)));
    }

    /// Returns the content visible to the running system.
    pub(crate) fn current(&self) -> Vec<u8> {
        let mut bytes = self.durable.clone();
        for (_, change) in &self.pending {
            change.apply(&mut bytes);
        }
        bytes
    }

    /// Makes changes before `began` durable.
    pub(crate) fn sync(&mut self, began: usize) {
        let count = self.pending.partition_point(|(position, _)| *position < began);
        for (_, change) in self.pending.drain(..count) {
            change.apply(&mut self.durable);
        }
    }

    /// Returns a possible state after a power loss.
    pub(crate) fn power_loss(&self, rng: &mut Rng) -> Vec<u8> {
        if self.pending.is_empty() {
            return self.durable.clone();
        }
        let changes = self.pending.len();
        let mood = match rng.u8(0..8) {
            0 => Survivors::None,
            1 => Survivors::All,
            2 | 3 => Survivors::Prefix(rng.usize(0..changes)),
            _ => Survivors::Sectors,
        };
        let lengths_kept = match mood {
            Survivors::None => 0,
            Survivors::All => changes,
            Survivors::Prefix(whole) => whole + rng.usize(0..2),
            Survivors::Sectors => [0, changes, rng.usize(0..=changes)][rng.usize(0..3)],
        };
        let sector = SECTORS[rng.usize(0..2)];
        let mut keeps = SectorChoice::new(&self.pending, sector);
        let (mut image, mut len) = (self.durable.clone(), self.durable.len());
        for (i, (_, change)) in self.pending.iter().enumerate() {
            let keep_length = i < lengths_kept;
            match change {
                ByteChange::SetLen(to) if keep_length => {
                    image.truncate(*to);
                    len = *to;
                }
                ByteChange::SetLen(_) => {}
                ByteChange::Write(offset, bytes) => {
                    let end = offset + bytes.len();
                    if keep_length {
                        len = len.max(end);
                    }
                    image.resize(image.len().max(end), 0);
                    for (number, piece) in pieces(*offset, bytes.len(), sector) {
                        let keep = match mood {
                            Survivors::None => false,
                            Survivors::All => true,
                            Survivors::Prefix(whole) => i < whole || (i == whole && rng.bool()),
                            Survivors::Sectors => keeps.next(number, rng),
                        };
                        if keep {
                            let (from, to) = (piece.start - offset, piece.end - offset);
                            image[piece].copy_from_slice(&bytes[from..to]);
                        }
                    }
                }
            }
        }
        image.resize(len, 0);
        image
    }
}

impl ByteChange {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            ByteChange::Write(offset, written) => {
                let end = offset + written.len();
                bytes.resize(bytes.len().max(end), 0);
                bytes[*offset..end].copy_from_slice(written);
            }
            ByteChange::SetLen(len) => bytes.resize(*len, 0),
        }
    }
}

/// For each sector, the number of pending writes and how many more of them survive.
struct SectorChoice {
    writes: HashMap<usize, usize>,
    left: HashMap<usize, usize>,
}

impl SectorChoice {
    fn new(pending: &[(usize, ByteChange)], sector: usize) -> Self {
        let mut writes = HashMap::new();
        for (_, change) in pending {
            if let ByteChange::Write(offset, bytes) = change {
                for (number, _) in pieces(*offset, bytes.len(), sector) {
                    *writes.entry(number).or_default() += 1;
                }
            }
        }
        SectorChoice { writes, left: HashMap::new() }
    }

    /// Returns whether the next write to this sector survives.
    fn next(&mut self, number: usize, rng: &mut Rng) -> bool {
        let left = self.left.entry(number).or_insert_with(|| rng.usize(0..=self.writes[&number]));
        let keep = *left > 0;
        *left = left.saturating_sub(1);
        keep
    }
}

/// Splits a range at sector boundaries.
fn pieces(offset: usize, len: usize, sector: usize) -> impl Iterator<Item = (usize, std::ops::Range<usize>)> {
    let mut at = offset;
    let end = offset + len;
    std::iter::from_fn(move || {
        let start = at;
        at = ((start / sector + 1) * sector).min(end);
        (start < end).then(|| (start / sector, start..at))
    })
}
