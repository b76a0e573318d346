//! Options of a database under test, so small that flushes and compactions run continuously.

use esker::{Blobs, Builder, Db, Durability, FileSizes};
use esker_world::perform::with_operator;
use fastrand::Rng;

/// Options determined by a seed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    memtable_bytes: usize,
    block_bytes: usize,
    table_bytes: u64,
    /// Whether data counts as larger than the cache, so that compactions use tiers.
    beyond: bool,
    /// Whether all commits go through the log, even large ones.
    logs_all: bool,
    /// Size from which values go to blob files; 0 disables them.
    blobs: Blobs,
    file_sizes: FileSizes,
    /// Default durability of commits.
    pub(crate) durability: Durability,
}

impl Shape {
    pub(crate) fn of(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        // Separate random numbers, so that these options do not change others of a seed.
        let mut layout = Rng::with_seed(seed.rotate_left(32));
        let usual = FileSizes::default();
        let file_sizes = FileSizes {
            first_segment: [usual.first_segment, 512, 4096][layout.usize(0..3)],
            bulk_segment: [usual.bulk_segment, 400_000][layout.usize(0..2)],
            manifest_min: [usual.manifest_min, 2048][layout.usize(0..2)],
        };
        let mut pick = |choices: [usize; 3]| choices[rng.usize(0..3)];
        Shape {
            memtable_bytes: pick([4 << 10, 16 << 10, 64 << 10]),
            block_bytes: pick([128, 512, 4 << 10]),
            table_bytes: pick([4 << 10, 16 << 10, 64 << 10]) as u64,
            beyond: layout.bool(),
            logs_all: layout.bool(),
            blobs: [Blobs::Never, Blobs::Never, Blobs::From(64), Blobs::From(300)][layout.usize(0..4)],
            file_sizes,
            durability: [Durability::None, Durability::Buffered, Durability::Sync][pick([0, 1, 2])],
        }
    }

    pub(crate) fn builder(self) -> Builder {
        let builder = with_operator(Db::builder())
            .memory(4 << 20)
            .tuning(|t| {
                t.memtable_bytes(self.memtable_bytes)
                    .replay_bytes(self.memtable_bytes as u64 / 4)
                    .block_bytes(self.block_bytes)
                    .table_bytes(self.table_bytes)
            })
            .file_sizes(self.file_sizes)
            .blobs(self.blobs)
            .durability(self.durability);
        let builder = if self.beyond { builder.miniature(0) } else { builder };
        if self.logs_all { builder.adoption_bytes(u64::MAX) } else { builder }
    }
}
