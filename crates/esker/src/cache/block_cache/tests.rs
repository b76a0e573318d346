//! Tests of the block cache: eviction, budget, threads.

use super::*;

#[derive(Debug)]
struct Item {
    table: u64,
    block: u64,
    payload: Vec<u64>,
}

impl Item {
    fn new(table: u64, block: u64) -> Arc<Item> {
        Arc::new(Item { table, block, payload: vec![table << 32 | block; 11] })
    }

    fn check(&self, table: u64, block: u64) {
        assert!((self.table, self.block) == (table, block) && self.payload == [table << 32 | block; 11]);
    }
}

impl CacheItem for Item {
    fn size_bytes(&self) -> usize {
        100
    }

    fn first_bytes(&self) -> *const u8 {
        self.payload.as_ptr().cast()
    }
}

fn resident(blocks: &CachedBlocks<Item>, count: usize) -> Vec<usize> {
    let pin = crate::sync::pin();
    (0..count).filter(|&i| blocks.peek(i, &pin).is_some()).collect()
}

#[test]
fn the_clock_gives_a_used_block_a_second_chance() {
    let cache = BlockCache::new(MemoryBudget::new(400));
    let blocks = cache.register(10);
    let pin = crate::sync::pin();
    for i in 0..4 {
        blocks.insert(i, &Item::new(0, i as u64), false, &pin);
    }
    blocks.load(0, &pin).unwrap().check(0, 0);
    blocks.insert(4, &Item::new(0, 4), false, &pin);
    assert_eq!(resident(&blocks, 10), [0, 2, 3, 4]);
    assert_eq!(cache.used_bytes(), 400);
    blocks.insert(4, &Item::new(0, 4), false, &pin);
    assert_eq!(cache.used_bytes(), 400, "a block is counted once");
}

#[test]
fn a_block_that_is_read_once_leaves_before_those_that_are_used() {
    const KEPT: usize = 32;
    let cache = BlockCache::new(MemoryBudget::new(100 * KEPT as u64));
    let blocks = cache.register(1000);
    let pin = crate::sync::pin();
    let pass = |block: usize, is_passing| {
        blocks.insert_passing(block, &Item::new(0, block as u64), is_passing, &pin);
        assert!(cache.used_bytes() <= 100 * KEPT as u64);
    };
    (0..KEPT).for_each(|block| pass(block, false));
    // Nothing was used, so the first passing blocks displace what the hand finds.
    (100..900).for_each(|block| pass(block, true));
    let in_use = (0..KEPT).filter(|&block| blocks.peek(block, &pin).is_some()).count();
    assert!(in_use >= KEPT - 4, "{in_use} of {KEPT} after a scan");
    // A second use ends the probation.
    pass(901, true);
    blocks.load(901, &pin).unwrap().check(0, 901);
    (902..920).for_each(|block| pass(block, true));
    assert!(blocks.peek(901, &pin).is_some());
    // A block that was evicted a moment ago stays if a get reads it, and not if a long walk does.
    assert!(blocks.peek(910, &pin).is_none() && blocks.peek(911, &pin).is_none());
    pass(910, false);
    pass(911, true);
    (920..930).for_each(|block| pass(block, true));
    assert!(blocks.peek(910, &pin).is_some() && blocks.peek(911, &pin).is_none());
    assert!(cache.clock.lock().probation.len() <= KEPT / 16 + 1);
    drop(blocks);
    assert_eq!(cache.used_bytes(), 0);
}

#[test]
fn a_dropped_table_gives_its_bytes_back() {
    let cache = BlockCache::new(MemoryBudget::new(1000));
    let (first, second) = (cache.register(4), cache.register(4));
    let pin = crate::sync::pin();
    for i in 0..4 {
        first.insert(i, &Item::new(1, i as u64), true, &pin);
        second.insert(i, &Item::new(2, i as u64), true, &pin);
    }
    let kept = first.load(2, &pin).unwrap().to_arc();
    drop(first);
    assert_eq!(cache.used_bytes(), 400);
    kept.check(1, 2);
    cache.budget().set_capacity(200);
    cache.shrink(&pin);
    assert_eq!((cache.used_bytes(), resident(&second, 4).len()), (200, 2));
    drop(second);
    assert_eq!(cache.used_bytes(), 0);
}

#[test]
fn the_clock_keeps_little_memory_of_dropped_directories() {
    const TABLES: usize = 1000;
    let cache = BlockCache::<Item>::new(MemoryBudget::new(1 << 20));
    let tables: Vec<_> = (0..TABLES).map(|_| cache.register(1)).collect();
    // Such as the slots for the pages of a root that has no space in the cache.
    (0..300).for_each(|_| drop(cache.register(10_000)));
    let dropped = cache.clock.lock().tables.iter().filter(|table| table.strong_count() == 0).count();
    assert!(dropped <= 1, "the memory of {dropped} large directories");
    (0..30 * TABLES).for_each(|_| drop(cache.register(0)));
    assert!(cache.clock.lock().tables.len() < 10 * tables.len(), "and of empty ones");
}

#[test]
fn a_block_beyond_the_allowance_is_not_kept() {
    let cache = BlockCache::new(MemoryBudget::new(99));
    let blocks = cache.register(1);
    blocks.insert(0, &Item::new(0, 0), true, &crate::sync::pin());
    assert_eq!(cache.used_bytes(), 0);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the cache has no Env: it does no I/O")]
fn slot_2_readers_and_evictions_at_the_same_time() {
    const TABLES: u64 = 3;
    const BLOCKS: u64 = 40;
    let rounds = if cfg!(miri) { 60 } else { 20_000 };
    let cache = BlockCache::<Item>::new(MemoryBudget::new(1500));
    let tables: Arc<Vec<_>> = Arc::new((0..TABLES).map(|_| cache.register(BLOCKS as usize)).collect());
    let threads: Vec<_> = (0..6)
        .map(|seed| {
            let (tables, cache) = (tables.clone(), cache.clone());
            std::thread::spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed);
                let mut kept = Vec::new();
                for round in 0..rounds {
                    let (table, block) = (rng.u64(..TABLES), rng.u64(..BLOCKS));
                    let pin = crate::sync::pin();
                    match tables[table as usize].load(block as usize, &pin) {
                        Some(found) => {
                            found.check(table, block);
                            if rng.u8(..) < 20 {
                                kept.push(found.to_arc());
                            }
                        }
                        None => {
                            let item = Item::new(table, block);
                            match rng.u8(..3) {
                                0 => tables[table as usize].insert(block as usize, &item, rng.bool(), &pin),
                                _ => {
                                    tables[table as usize].insert_passing(
                                        block as usize,
                                        &item,
                                        rng.bool(),
                                        &pin,
                                    );
                                }
                            }
                        }
                    }
                    drop(pin);
                    if round % (rounds / 40).max(20) == 0 {
                        kept.drain(..).for_each(|item: Arc<Item>| item.check(item.table, item.block));
                        cache.budget().set_capacity(rng.u64(500..2500));
                        // Tables come and go while the clock runs.
                        let passing = cache.register(2);
                        passing.insert(0, &Item::new(9, 0), true, &crate::sync::pin());
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    let left: usize = tables.iter().map(|t| resident(t, BLOCKS as usize).len()).sum();
    assert_eq!(cache.used_bytes(), left as u64 * 100, "block_cache.1");
    drop(tables);
    assert_eq!(cache.used_bytes(), 0);
}
