//! Generates the ends and beginnings of processes: openings, crashes, mishaps, faults.

use esker::{Blobs, FileSizes, TableCompression};

use super::{Generator, Size};
use crate::op::{Calls, End, Failure, Fault, Loss, Mishap, Opening, Restart};

/// The codec with the highest compression.
#[cfg(feature = "zstd")]
const DENSEST: TableCompression = TableCompression::Zstd;
#[cfg(not(feature = "zstd"))]
const DENSEST: TableCompression = TableCompression::Auto;

impl Generator<'_> {
    pub(super) fn opening(&mut self) -> Opening {
        let pick = |g: &mut Self, sizes: [usize; 3]| sizes[g.choices.usize(0..3)];
        let (memtable_bytes, block_bytes, table_bytes) = match self.size {
            Size::Tiny => {
                (pick(self, [700, 4096, 4096]), pick(self, [64, 128, 300]), pick(self, [512, 1024, 4096]))
            }
            Size::Small => (
                pick(self, [8 << 10, 20 << 10, 40 << 10]),
                pick(self, [256, 1024, 4096]),
                pick(self, [8 << 10, 16 << 10, 64 << 10]),
            ),
            Size::Normal => (pick(self, [64 << 10, 256 << 10, 1 << 20]), 8 << 10, 1 << 20),
        };
        let durability = self.durability();
        let small = Some(2 * table_bytes as u64);
        let memories = [(1 << 20, Some(0)), (1 << 20, None), (16 << 20, small), (16 << 20, None)];
        let (memory, miniature) = memories[self.choices.usize(0..4)];
        Opening {
            durability,
            memory,
            // In half of the openings the data is soon or always larger than the cache.
            miniature,
            file_sizes: self.file_sizes(),
            memtable_bytes,
            transaction_memory: self.features.large_transactions.then_some(memtable_bytes as u64 / 8),
            adoption_bytes: self.features.logs_all.then_some(u64::MAX),
            blobs: self.blobs(),
            feed_bytes: self.feed_bytes(),
            block_bytes,
            table_bytes: table_bytes.max(block_bytes) as u64,
            compression: self.compression(),
            stepped: self.stepped,
        }
    }

    /// Returns which values go to blob files. In one opening of four no new values do, but existing blob
    /// files are read.
    pub(super) fn blobs(&self) -> Blobs {
        let rules = [Blobs::From(64), Blobs::From(200), Blobs::Never, Blobs::From(12)];
        if self.features.blobs { rules[self.stamp as usize % 4] } else { Blobs::Never }
    }

    /// Returns the bytes kept for the feed: mostly all, in one opening of four few, in one none.
    pub(super) fn feed_bytes(&self) -> Option<u64> {
        let bytes = [Some(u64::MAX), Some(u64::MAX), Some(20_000), None][self.stamp as usize / 4 % 4];
        bytes.filter(|_| self.features.feed)
    }

    pub(super) fn compression(&mut self) -> TableCompression {
        let codecs = [TableCompression::Auto, TableCompression::Lz4, DENSEST];
        if self.one_in(4) { codecs[self.choices.usize(0..3)] } else { TableCompression::None }
    }

    /// Returns the default sizes, or sizes so small that segments grow, commits fill several, and manifests
    /// are replaced.
    pub(super) fn file_sizes(&mut self) -> FileSizes {
        let usual = FileSizes::default();
        FileSizes {
            first_segment: [usual.first_segment, 512, 1024, 4096][self.choices.usize(0..4)],
            bulk_segment: [usual.bulk_segment, 2000, 9000, 60_000][self.choices.usize(0..4)],
            manifest_min: [usual.manifest_min, 1024][self.choices.usize(0..2)],
        }
    }

    pub(super) fn loss(&mut self) -> Loss {
        match self.choices.u8(0..6) {
            0 => Loss::All,
            1 => Loss::Nothing,
            _ => Loss::Seed(self.choices.any_u64()),
        }
    }

    /// Returns a kill or a power loss.
    pub(super) fn crash(&mut self) -> End {
        match self.choices.u8(0..8) {
            1 | 3 => End::Kill,
            n @ (5 | 7) => End::KillUnheard { seed: self.stamp.into(), evicted: n == 7 },
            _ => End::Power(self.loss()),
        }
    }

    pub(super) fn mishaps(&mut self) -> Vec<Mishap> {
        if !self.one_in(3) {
            return Vec::new();
        }
        let one = |g: &mut Self| match g.choices.u8(0..8) {
            0 if g.faults => Mishap::Full(g.choices.u32(0..20_000)),
            0..3 if g.faults => {
                let mut fault = g.fault(40);
                // After an unclean end, a misread end of the log would be taken for a torn one.
                if matches!(fault.failure, Failure::Misread) {
                    fault.failure = Failure::Error;
                }
                Mishap::Fault(fault)
            }
            _ => Mishap::End { after: g.choices.u32(0..25), keep: g.keep(), end: g.crash() },
        };
        (0..self.choices.usize(1..3)).map(|_| one(self)).collect()
    }

    pub(super) fn restart(&mut self) -> Restart {
        let end = match self.choices.u8(0..10) {
            0..2 => End::Close,
            2 => End::Drop,
            _ => self.crash(),
        };
        Restart { end, mishaps: self.mishaps(), opening: self.opening() }
    }

    /// Returns how many bytes of its last write a process completes.
    pub(super) fn keep(&mut self) -> u32 {
        [0, 7, 600, 5000, u32::MAX][self.choices.usize(0..5)]
    }

    pub(super) fn fault(&mut self, within: u32) -> Fault {
        let calls =
            [Calls::All, Calls::Changes, Calls::Writes, Calls::Syncs, Calls::Reads][self.choices.usize(0..5)];
        Fault {
            calls,
            nth: self.choices.u32(1..within),
            times: [1, 1, 2, 5, 0][self.choices.usize(0..5)],
            failure: match self.choices.u8(0..4) {
                0 if calls != Calls::Reads => Failure::NoSpace,
                1 | 2 if calls == Calls::Syncs => Failure::LostSync,
                1 if calls == Calls::Writes => Failure::Short(self.choices.u16(0..2000)),
                2 | 3 if calls == Calls::Reads => Failure::Misread,
                _ => Failure::Error,
            },
        }
    }
}
