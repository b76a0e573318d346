//! The options of a database under torture: sizes so small that flushes and merges run all the time.

use esker::{Builder, Db, Durability};
use fastrand::Rng;

/// Options that a seed determines.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    memtable_bytes: usize,
    block_bytes: usize,
    table_bytes: u64,
    /// What a commit promises that does not say.
    pub(crate) durability: Durability,
}

impl Shape {
    pub(crate) fn of(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let mut pick = |choices: [usize; 3]| choices[rng.usize(0..3)];
        Shape {
            memtable_bytes: pick([4 << 10, 16 << 10, 64 << 10]),
            block_bytes: pick([128, 512, 4 << 10]),
            table_bytes: pick([4 << 10, 16 << 10, 64 << 10]) as u64,
            durability: [Durability::None, Durability::Buffered, Durability::Sync][pick([0, 1, 2])],
        }
    }

    pub(crate) fn builder(self) -> Builder {
        Db::builder()
            .memory(4 << 20)
            .memtable_bytes(self.memtable_bytes)
            .replay_bytes(self.memtable_bytes as u64 / 4)
            .block_bytes(self.block_bytes)
            .table_bytes(self.table_bytes)
            .durability(self.durability)
    }
}
