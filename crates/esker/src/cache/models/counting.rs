//! Loom models of the byte counts of the cache: insertions, the clock and dropped directories, in every
//! interleaving.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Block, Epoch};
use crate::cache::{BlockCache, CacheItem, CachedBlocks, MemoryBudget};
use crate::sync::fault::{Broken, Fault};
use crate::sync::model;

impl CacheItem for Block {
    fn size_bytes(&self) -> usize {
        1
    }

    fn first_bytes(&self) -> *const u8 {
        std::ptr::null()
    }
}

/// A cache with space for one block.
struct World {
    cache: Arc<BlockCache<Block>>,
    epoch: Epoch,
    /// How often each block was freed.
    freed: Vec<Arc<AtomicUsize>>,
}

impl World {
    fn new(blocks: usize) -> Arc<World> {
        let cache = BlockCache::new(MemoryBudget::new(1));
        Arc::new(World {
            cache,
            epoch: Epoch::default(),
            freed: (0..blocks).map(|_| Arc::default()).collect(),
        })
    }

    fn insert(&self, blocks: &CachedBlocks<Block>, at: usize, block: usize, hot: bool) {
        blocks.insert(at, &Block::new(1, &self.freed[block]), hot, &self.epoch);
    }

    fn pass(&self, blocks: &CachedBlocks<Block>, at: usize, block: usize) {
        blocks.insert_passing(at, &Block::new(1, &self.freed[block]), false, &self.epoch);
    }

    /// Called when no other thread uses the cache.
    fn assert_counted(&self, blocks: &CachedBlocks<Block>) {
        let resident = (0..2).filter(|&at| blocks.peek(at, &self.epoch).is_some()).count() as u64;
        assert_eq!(self.cache.used_bytes(), resident, "block_cache.1");
    }

    fn end(&self, blocks: CachedBlocks<Block>) {
        self.assert_counted(&blocks);
        self.cache.shrink(&self.epoch);
        assert!(self.cache.used_bytes() <= 1);
        self.assert_counted(&blocks);
        drop(blocks);
        assert_eq!(self.cache.used_bytes(), 0);
        self.epoch.end();
        for freed in &self.freed {
            assert_eq!(freed.load(Ordering::Relaxed), 1, "each block is freed once");
        }
    }
}

#[test]
fn block_cache_1_two_insertions_and_a_directory_that_goes() {
    model(|| {
        let world = World::new(3);
        let (stays, goes) = (world.cache.register(2), world.cache.register(2));
        // The hand starts with the directory that stays, so the block inserted there may be evicted before
        // the older one.
        world.insert(&goes, 0, 0, false);
        let inserting = {
            let world = world.clone();
            loom::thread::spawn(move || {
                world.insert(&stays, 0, 1, false);
                stays
            })
        };
        world.insert(&goes, 1, 2, false);
        drop(goes);
        let stays = inserting.join().unwrap();
        world.end(stays);
    });
}

#[test]
fn block_cache_1_of_two_insertions_into_one_slot_one_is_counted() {
    model(|| {
        let world = World::new(2);
        let blocks = Arc::new(world.cache.register(2));
        let other = {
            let (world, blocks) = (world.clone(), blocks.clone());
            loom::thread::spawn(move || world.insert(&blocks, 0, 1, true))
        };
        world.insert(&blocks, 0, 0, false);
        if let Some(block) = blocks.load(0, &world.epoch) {
            assert_eq!(block.read(), 1);
        }
        other.join().unwrap();
        world.end(Arc::into_inner(blocks).unwrap());
    });
}

#[test]
fn block_cache_1_two_hands_and_a_directory_that_goes() {
    model(|| {
        let world = World::new(2);
        let (stays, goes) = (world.cache.register(2), world.cache.register(2));
        // More blocks than fit, as after the budget has shrunk.
        world.cache.budget().set_capacity(2);
        world.insert(&goes, 0, 0, true);
        world.insert(&stays, 0, 1, true);
        world.cache.budget().set_capacity(1);
        let hand = {
            let world = world.clone();
            loom::thread::spawn(move || world.cache.shrink(&world.epoch))
        };
        let owner = loom::thread::spawn(move || drop(goes));
        world.cache.shrink(&world.epoch);
        hand.join().unwrap();
        owner.join().unwrap();
        world.end(stays);
    });
}

#[test]
fn block_cache_1_blocks_on_probation_and_a_directory_that_goes() {
    model(|| {
        let world = World::new(3);
        let (stays, goes) = (world.cache.register(2), world.cache.register(2));
        world.pass(&goes, 0, 0);
        let passing = {
            let world = world.clone();
            loom::thread::spawn(move || {
                world.pass(&stays, 0, 1);
                stays
            })
        };
        world.pass(&goes, 1, 2);
        drop(goes);
        let stays = passing.join().unwrap();
        world.end(stays);
    });
}

#[test]
#[should_panic(expected = "bytes counted out of")]
fn canary_bc1_a_block_counted_late_is_found() {
    let _broken = Broken::new(Fault::BlockCountedLate);
    block_cache_1_two_insertions_and_a_directory_that_goes();
}
