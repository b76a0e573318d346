//! The workload of the sweeps: all kinds of files, all operations, all durabilities, several memtables and merges, a
//! commit that needs log segments of its own.

use std::ops::{Bound, Range};

use esker::{BackgroundStep, Durability};

use crate::model::keys::KeyNo;
use crate::model::values::ValueNo;
use crate::op::{End, KeyspaceNo, Op, Opening, Reader, Restart, Write};

/// How the workload's database is opened.
pub(super) fn opening() -> Opening {
    Opening {
        durability: Durability::Sync,
        memory: 1 << 20,
        memtable_bytes: 4096,
        block_bytes: 128,
        table_bytes: 1024,
        compressed: false,
        stepped: true,
    }
}

/// Plain keys of the pool.
fn key(n: usize) -> KeyNo {
    KeyNo(300 + n as u16)
}

fn puts(keyspace: u8, keys: Range<usize>, tag: u32) -> Vec<(KeyspaceNo, Write)> {
    let value = |n: usize| ValueNo::new(10 + (n * 7 % 60) as u32, tag << 16 | n as u32);
    keys.map(|n| (KeyspaceNo(keyspace), Write::Put(key(n), value(n)))).collect()
}

/// The first of the two keyspaces, by their numbers, is the default one.
const DEFAULT: u8 = 0;
const OTHER: u8 = 1;
const THIRD: u8 = 2;

/// The operations.
pub(super) fn script() -> Vec<Op> {
    use Durability::{Buffered, None as NotSoon, Sync};
    let remove_range = |keyspace, from, to| {
        let range = (Bound::Included(key(from)), Bound::Excluded(key(to)));
        Op::Batch(vec![(KeyspaceNo(keyspace), Write::RemoveRange(range))], Sync)
    };
    let remove = |keyspace, n| (KeyspaceNo(keyspace), Write::Remove(key(n)));
    let reopen = || Op::Restart(Restart { end: End::Close, mishaps: Vec::new(), opening: opening() });
    let merge = |idle| Op::Step(BackgroundStep::Merge { idle });
    let flush = || Op::Step(BackgroundStep::Flush);
    let mut ops = vec![
        Op::Batch(puts(DEFAULT, 0..1, 1), Sync),
        Op::Create(0),
        Op::Batch(puts(OTHER, 0..30, 2), Sync),
        Op::Batch(puts(DEFAULT, 0..40, 3), Buffered),
        Op::Flush,
        Op::Snapshot(0),
        Op::Batch(vec![remove(OTHER, 3), remove(DEFAULT, 4)], Sync),
        remove_range(OTHER, 5, 12),
        Op::Batch(puts(OTHER, 8..10, 4), NotSoon),
        Op::Create(4),
        Op::Batch(puts(THIRD, 0..10, 5), Sync),
        Op::Begin(0),
        Op::TransactionWrite(0, KeyspaceNo(DEFAULT), Write::Put(key(50), ValueNo::new(30, 6))),
        Op::TransactionWrite(0, KeyspaceNo(OTHER), Write::Remove(key(9))),
        Op::Commit(0, Sync),
        Op::Flush,
        merge(true),
        Op::Check,
        reopen(),
    ];
    // Small commits until memtables fill of themselves; what the background does lags behind.
    for n in 0..24 {
        let durability = [Sync, Buffered, NotSoon][n % 3];
        ops.push(Op::Batch(puts(DEFAULT, n * 3..n * 3 + 6, 10 + n as u32), durability));
        match n % 6 {
            1 => ops.push(Op::Step(BackgroundStep::PrepareLog)),
            3 => ops.push(flush()),
            4 => ops.push(Op::Step(BackgroundStep::SyncLog)),
            5 => ops.push(merge(false)),
            _ => {}
        }
    }
    let mut both = puts(DEFAULT, 10..20, 40);
    both.push((
        KeyspaceNo(DEFAULT),
        Write::RemoveRange((Bound::Excluded(key(13)), Bound::Excluded(key(40)))),
    ));
    both.extend(puts(OTHER, 10..20, 41));
    both.extend(puts(DEFAULT, 16..18, 42));
    let bulk = |tag: u32| {
        let value = |n: usize| ValueNo::new(60_000, tag << 16 | n as u32);
        (0..20).map(|n| (KeyspaceNo(DEFAULT), Write::Put(key(n), value(n)))).collect()
    };
    ops.extend([
        Op::Sync,
        flush(),
        merge(true),
        Op::Batch(both, Sync),
        Op::Rename(KeyspaceNo(OTHER), 1),
        Op::Drop(KeyspaceNo(THIRD)),
        Op::Compact,
        Op::Batch(puts(OTHER, 20..22, 43), NotSoon),
        Op::Write(KeyspaceNo(OTHER), Write::Clear),
        Op::Batch(puts(OTHER, 2..5, 44), Buffered),
        reopen(),
        Op::Batch(puts(DEFAULT, 60..75, 45), Sync),
        Op::Flush,
        merge(true),
        remove_range(DEFAULT, 0, 9),
        Op::Compact,
        Op::Batch(bulk(46), Sync),
        Op::Batch(puts(DEFAULT, 7..8, 47), Buffered),
        flush(),
        Op::Batch(bulk(48), Buffered),
        Op::Batch(puts(DEFAULT, 3..9, 49), Sync),
        Op::Compact,
        Op::Batch(puts(DEFAULT, 1..3, 50), Sync),
        Op::Read(Reader::Latest, KeyspaceNo(DEFAULT), crate::op::Read::Len),
    ]);
    ops
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_touches_every_kind_of_operation() {
        let text = format!("{:?}", script());
        for name in [
            "Batch",
            "Create",
            "Drop",
            "Rename",
            "Clear",
            "Flush",
            "Compact",
            "SyncLog",
            "PrepareLog",
            "Commit",
        ] {
            assert!(text.contains(name), "{name}");
        }
        assert!(!text.contains("Power"), "losses are the sweep's to choose");
    }
}
