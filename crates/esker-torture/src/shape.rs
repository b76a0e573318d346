//! Options of a database under test, so small that flushes and compactions run continuously.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use esker::{Blobs, Builder, Db, Durability, Event, FileSizes};
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
    /// Number of compactions at the same time.
    compactions: usize,
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
            compactions: Rng::with_seed(seed.rotate_left(16)).usize(1..=4),
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
                    .compactions(self.compactions)
            })
            .file_sizes(self.file_sizes)
            .blobs(self.blobs)
            .durability(self.durability);
        let builder = if self.beyond { builder.miniature(0) } else { builder };
        if self.logs_all { builder.adoption_bytes(u64::MAX) } else { builder }
    }
}

/// Counts the compactions that began while others ran.
#[derive(Clone, Default)]
pub(crate) struct CompactionsBeside {
    running: Arc<AtomicU64>,
    begun: Arc<AtomicU64>,
}

impl CompactionsBeside {
    /// Adds the counter to the options.
    pub(crate) fn with(&self, builder: Builder) -> Builder {
        let count = self.clone();
        builder.on_event(move |event| match event {
            Event::CompactionBegun { .. } => {
                let is_beside = count.running.fetch_add(1, Ordering::Relaxed) > 0;
                count.begun.fetch_add(u64::from(is_beside), Ordering::Relaxed);
            }
            Event::CompactionEnded { .. } => _ = count.running.fetch_sub(1, Ordering::Relaxed),
            _ => {}
        })
    }

    /// Number of compactions that began while others ran.
    pub(crate) fn get(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }
}
