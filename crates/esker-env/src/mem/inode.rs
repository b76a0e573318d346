//! The bytes of one file, and which of them a power loss may lose.
//!
//! ```text
//!   write, set_len --> current --sync--> synced
//!              `-> pending, in order --crash--> each kept, lost or torn over `synced`
//! ```
//!
//! A crash keeps every synced byte that no pending change touches.
//!
//! `current` equals `synced` with all of `pending` applied in order, except for bytes forgotten by a failed
//! sync. A prefix of the length changes survives a crash, as in a journal, independently of the bytes. A kept
//! length over lost bytes shows zeros, or on request noise or bytes of another file.

use fastrand::Rng;

use super::Crash;
use super::pages::Pages;

/// Sizes of the units that disks write atomically.
const SECTORS: [usize; 2] = [512, 4096];
/// Separates the random numbers for noise from those that decide what is kept.
const NOISE: u64 = 0x6E_6F69_7365;

pub(super) struct Inode {
    current: Pages,
    synced: Pages,
    pending: Vec<Change>,
    /// A failed sync or writeback forgot bytes of `current`, which are neither in `synced` nor in `pending`.
    forgetful: bool,
    /// Number of names in the running program's view.
    pub(super) links: u32,
    /// Open handles.
    pub(super) handles: u32,
}

#[derive(Clone)]
enum Change {
    Write { offset: u64, bytes: Box<[u8]> },
    SetLen(u64),
}

/// What a crash does to one pending write.
enum Fate {
    Keep,
    Lose,
    /// Each sector of this many bytes is kept or lost by itself.
    Tear(usize),
}

impl Inode {
    /// Creates a file with one name whose bytes are durable.
    pub(super) fn durable(bytes: Pages) -> Inode {
        Inode {
            current: bytes.clone(),
            synced: bytes,
            pending: Vec::new(),
            forgetful: false,
            links: 1,
            handles: 0,
        }
    }

    /// Copies the file, including pending changes, without handles.
    pub(super) fn without_handles(&self) -> Inode {
        Inode {
            current: self.current.clone(),
            synced: self.synced.clone(),
            pending: self.pending.clone(),
            forgetful: self.forgetful,
            links: self.links,
            handles: 0,
        }
    }

    pub(super) fn current(&self) -> &Pages {
        &self.current
    }

    pub(super) fn write(&mut self, buf: &[u8], offset: u64) {
        self.current.write(buf, offset);
        self.pending.push(Change::Write { offset, bytes: buf.into() });
    }

    pub(super) fn set_len(&mut self, len: u64) {
        self.current.set_len(len);
        self.pending.push(Change::SetLen(len));
    }

    /// Makes everything durable. The cost depends on the pending changes, not on the length.
    pub(super) fn sync(&mut self) {
        let mut len = self.synced.len();
        let shrank = self.pending.iter().any(|change| match change {
            Change::Write { offset, bytes } => {
                len = len.max(offset + bytes.len() as u64);
                false
            }
            Change::SetLen(new) => *new < std::mem::replace(&mut len, *new),
        });
        if self.forgetful {
            self.synced = self.all_kept();
            self.pending.clear();
            return;
        }
        if shrank {
            self.synced = self.current.clone();
            self.pending.clear();
            return;
        }
        self.synced.set_len(self.current.len());
        for change in self.pending.drain(..) {
            if let Change::Write { offset, bytes } = change {
                self.synced.share(&self.current, offset, bytes.len());
            }
        }
    }

    /// Fails a sync: unsynced bytes count as clean. Readers still see them, but only lengths can become
    /// durable.
    pub(super) fn forget_unsynced(&mut self) {
        let mut len = self.synced.len();
        for change in std::mem::take(&mut self.pending) {
            let new = match change {
                Change::SetLen(new) => new,
                Change::Write { offset, bytes } => len.max(offset + bytes.len() as u64),
            };
            if new != len {
                self.pending.push(Change::SetLen(new));
                len = new;
            }
            self.forgetful = true;
        }
    }

    /// Writes a random part of the pending changes and marks the rest clean. Readers see the rest, or, with
    /// `evicted`, the state on disk. Only lengths can still become durable.
    pub(super) fn fail_writeback(&mut self, seed: u64, evicted: bool) {
        if !self.pending.is_empty() {
            let len = self.current.len();
            self.synced = self.crash_randomly(&mut Rng::with_seed(seed), None);
            self.pending = Vec::from_iter((self.synced.len() != len).then_some(Change::SetLen(len)));
            self.forgetful = true;
        }
        if evicted && self.forgetful {
            self.current = self.all_kept_of_disk();
            self.forgetful = false;
        }
    }

    /// Returns the state on disk after all pending changes are written.
    fn all_kept(&self) -> Pages {
        if self.forgetful { self.all_kept_of_disk() } else { self.current.clone() }
    }

    fn all_kept_of_disk(&self) -> Pages {
        let mut bytes = self.synced.clone();
        for change in &self.pending {
            match change {
                Change::SetLen(len) => bytes.set_len(*len),
                Change::Write { offset, bytes: written } => bytes.write(written, *offset),
            }
        }
        bytes
    }

    /// Returns the bytes that a power loss may leave.
    pub(super) fn crash(&self, crash: &mut Crash) -> Pages {
        match crash {
            Crash::Strict => self.synced.clone(),
            Crash::KeepAll => self.all_kept(),
            Crash::Random { .. } if self.pending.is_empty() => self.synced.clone(),
            Crash::Random { rng, old } => self.crash_randomly(rng, old.as_deref()),
        }
    }

    fn crash_randomly(&self, rng: &mut Rng, old: Option<&[Pages]>) -> Pages {
        // Independent decisions would make complete losses and clean prefixes too rare, so each file first
        // draws a pattern.
        let changes = self.pending.len();
        let prefix = match rng.u8(0..8) {
            0 => return self.synced.clone(),
            1 => return self.all_kept(),
            2 | 3 => Some(rng.usize(0..changes)),
            _ => None,
        };
        let lengths_kept = match (prefix, rng.u8(0..3)) {
            (Some(whole), 0) => whole,
            (Some(whole), _) => whole + 1,
            (None, 0) => 0,
            (None, 1) => changes,
            (None, _) => rng.usize(0..=changes),
        };
        let mut noise = Rng::with_seed(rng.get_seed() ^ NOISE);
        let old = old.filter(|_| noise.u8(0..4) == 0);
        let other = old.filter(|_| noise.bool()).and_then(|old| noise.choice(old));
        let mut left = self.synced.clone();
        for (i, change) in self.pending.iter().enumerate() {
            let keep_length = i < lengths_kept;
            match change {
                Change::SetLen(len) if keep_length => left.set_len(*len),
                Change::SetLen(_) => {}
                Change::Write { offset, bytes } => {
                    let (len, end) = (left.len(), offset + bytes.len() as u64);
                    if keep_length && len < end {
                        left.set_len(end);
                        if old.is_some() {
                            let from = len.max(*offset);
                            let mut before = vec![0; (end - from) as usize];
                            noise.fill(&mut before);
                            if let Some(other) = other {
                                other.read(&mut before, from);
                            }
                            left.write_within(&before, from);
                        }
                    }
                    write_torn(&mut left, bytes, *offset, fate(i, prefix, rng), rng);
                }
            }
        }
        left
    }
}

fn fate(i: usize, prefix: Option<usize>, rng: &mut Rng) -> Fate {
    let tear = Fate::Tear(SECTORS[rng.usize(0..SECTORS.len())]);
    match prefix {
        Some(whole) if i < whole => Fate::Keep,
        Some(whole) if i > whole => Fate::Lose,
        Some(_) => tear,
        None => match rng.u8(0..3) {
            0 => Fate::Keep,
            1 => Fate::Lose,
            _ => tear,
        },
    }
}

fn write_torn(pages: &mut Pages, bytes: &[u8], offset: u64, fate: Fate, rng: &mut Rng) {
    match fate {
        Fate::Keep => pages.write_within(bytes, offset),
        Fate::Lose => {}
        Fate::Tear(sector) => {
            let mut at = 0;
            while at < bytes.len() {
                let position = offset + at as u64;
                let n = (sector - (position % sector as u64) as usize).min(bytes.len() - at);
                if rng.bool() {
                    pages.write_within(&bytes[at..at + n], position);
                }
                at += n;
            }
        }
    }
}
