//! One file without its name: its bytes, and which of them a power loss would take.
//!
//! ```text
//!   write, set_len --> current --sync--> synced
//!              `-> pending, in order --crash--> each kept, lost or torn over `synced`
//! ```
//!
//! inode.1. `current` is `synced` with all of `pending` applied in order, but for the bytes that a failed sync or write-back forgot.
//! inode.2. A crash keeps every synced byte that no pending change touches.
//! inode.3. Changes of the length survive a crash as a prefix, as a journal would keep them; bytes survive independently
//!     of it. A kept length over lost bytes shows zeros, or, if asked for, noise or bytes of another file.

use fastrand::Rng;

use super::Crash;
use super::pages::Pages;

/// The units that disks write whole.
const SECTORS: [usize; 2] = [512, 4096];
/// Tells the draws of noise from those of what is kept.
const NOISE: u64 = 0x6E_6F69_7365;

pub(super) struct Inode {
    current: Pages,
    synced: Pages,
    pending: Vec<Change>,
    /// A failed sync or write-back forgot bytes of `current`: they are neither in `synced` nor in `pending`.
    forgetful: bool,
    /// How many names the file has, as the running program sees them.
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
    /// A named file whose bytes are all durable.
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

    /// The file as it is, synced and pending apart, with no handle on it.
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

    /// Makes everything durable, at a cost that follows what is pending rather than the file's length.
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

    /// A sync fails: what is not durable counts as clean. Readers still see the bytes; only lengths can become durable.
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

    /// The system writes a part of what is pending, chosen by the seed, and the rest counts as clean: readers see it or, if it is
    /// `evicted`, what is on the disk, also of what was forgotten earlier. Only lengths can still become durable.
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

    /// What the disk has when everything that is pending reaches it.
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

    /// The bytes that a power loss may leave (inode.2, inode.3).
    pub(super) fn crash(&self, crash: &mut Crash) -> Pages {
        match crash {
            Crash::Strict => self.synced.clone(),
            Crash::KeepAll => self.all_kept(),
            Crash::Random { .. } if self.pending.is_empty() => self.synced.clone(),
            Crash::Random { rng, old } => self.crash_randomly(rng, old.as_deref()),
        }
    }

    fn crash_randomly(&self, rng: &mut Rng, old: Option<&[Pages]>) -> Pages {
        // Pure chance per write would make whole losses and clean prefixes too rare: each file draws a mood first.
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
