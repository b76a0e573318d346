//! The bytes of a file or of a device: what is surely stored, and what a power loss may leave of the rest.
//!
//! ```text
//!   write, set_len --> pending --sync--> durable
//!                        |--current: what the running system sees
//!                        `--power_loss(rng): what may be there when the power comes back
//! ```
//!
//! content.1. After a power loss each sector (of 512 or 4096 bytes) that has unsynced writes is as after the first n of them, for
//!     some n of its own: a cache holds all writes so far and may be written back at any time.
//! content.2. Lengths survive as a prefix of their changes. Bytes that a surviving length covers and no write reached are zero.

use std::collections::HashMap;

use fastrand::Rng;

/// The units that disks write whole.
const SECTORS: [usize; 2] = [512, 4096];

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Content {
    durable: Vec<u8>,
    /// Each with its position in the order of all that happens.
    pending: Vec<(usize, ByteChange)>,
}

#[derive(Clone, Debug)]
enum ByteChange {
    Write(usize, Vec<u8>),
    SetLen(usize),
}

/// Which of the pending changes reach the disk.
enum Mood {
    None,
    All,
    /// Those before this one; this one in part.
    Prefix(usize),
    /// For each sector its own number.
    Sectors,
}

impl Content {
    /// Bytes that are surely stored.
    pub(crate) fn durable(durable: Vec<u8>) -> Self {
        Content { durable, pending: Vec::new() }
    }

    /// Bytes are written, at this position in the order of things.
    pub(crate) fn write(&mut self, at: usize, offset: usize, bytes: Vec<u8>) {
        self.pending.push((at, ByteChange::Write(offset, bytes)));
    }

    /// The length is set.
    pub(crate) fn set_len(&mut self, at: usize, len: usize) {
        self.pending.push((at, ByteChange::SetLen(len)));
    }

    /// What the running system sees.
    pub(crate) fn current(&self) -> Vec<u8> {
        let mut bytes = self.durable.clone();
        for (_, change) in &self.pending {
            change.apply(&mut bytes);
        }
        bytes
    }

    /// Makes durable what happened before `began`.
    pub(crate) fn sync(&mut self, began: usize) {
        let count = self.pending.partition_point(|(position, _)| *position < began);
        for (_, change) in self.pending.drain(..count) {
            change.apply(&mut self.durable);
        }
    }

    /// What may be left when the power goes now (content.1, content.2).
    pub(crate) fn power_loss(&self, rng: &mut Rng) -> Vec<u8> {
        if self.pending.is_empty() {
            return self.durable.clone();
        }
        let changes = self.pending.len();
        let mood = match rng.u8(0..8) {
            0 => Mood::None,
            1 => Mood::All,
            2 | 3 => Mood::Prefix(rng.usize(0..changes)),
            _ => Mood::Sectors,
        };
        let lengths_kept = match mood {
            Mood::None => 0,
            Mood::All => changes,
            Mood::Prefix(whole) => whole + rng.usize(0..2),
            Mood::Sectors => [0, changes, rng.usize(0..=changes)][rng.usize(0..3)],
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
                            Mood::None => false,
                            Mood::All => true,
                            Mood::Prefix(whole) => i < whole || (i == whole && rng.bool()),
                            Mood::Sectors => keeps.next(number, rng),
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

/// For each sector: how many writes to it there are, and how many of them reach the disk (content.1).
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

    /// Whether the next write to this sector is among those that reach the disk.
    fn next(&mut self, number: usize, rng: &mut Rng) -> bool {
        let left = self.left.entry(number).or_insert_with(|| rng.usize(0..=self.writes[&number]));
        let keep = *left > 0;
        *left = left.saturating_sub(1);
        keep
    }
}

/// The parts of a range that lie in one sector each, with the sector's number.
fn pieces(offset: usize, len: usize, sector: usize) -> impl Iterator<Item = (usize, std::ops::Range<usize>)> {
    let mut at = offset;
    let end = offset + len;
    std::iter::from_fn(move || {
        let start = at;
        at = ((start / sector + 1) * sector).min(end);
        (start < end).then(|| (start / sector, start..at))
    })
}
