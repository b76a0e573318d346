//! Loom models of a slot (readers, an insertion and the clock hand) and, in `counting`, of the cache's byte
//! counts, in every interleaving. See `crate::sync`.
#![expect(unsafe_code, reason = "blocks are shared as the engine shares them")]

mod counting;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use loom::cell::UnsafeCell;

use super::slot::{Moment, Slot};
use crate::sync::fault::{Broken, Fault};
use crate::sync::{Pin, model};

/// A block whose content loom tracks. A reader that is not synchronized by the writer's Release and its own
/// Acquire is reported.
struct Block {
    content: UnsafeCell<u32>,
    dropped: Arc<AtomicUsize>,
}

// SAFETY: `content` is written before the block is shared.
unsafe impl Sync for Block {}

impl Block {
    fn new(content: u32, dropped: &Arc<AtomicUsize>) -> Arc<Block> {
        let block = Block { content: UnsafeCell::new(0), dropped: dropped.clone() };
        // SAFETY: the block is not shared yet.
        block.content.with_mut(|p| unsafe { *p = content });
        Arc::new(block)
    }

    fn read(&self) -> u32 {
        // SAFETY: loom checks that no write races with it.
        self.content.with(|p| unsafe { *p })
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

/// An epoch that ends when the model does: deferred work waits for all threads.
#[derive(Clone, Default)]
struct Epoch(Arc<Mutex<Vec<Box<dyn FnOnce() + Send>>>>);

// SAFETY: deferred work runs only in `end`, which the models call after joining all threads.
unsafe impl Pin for Epoch {
    unsafe fn defer(&self, work: impl FnOnce()) {
        struct Anywhere<F>(F);
        // SAFETY: the caller of `defer` allows any thread.
        unsafe impl<F> Send for Anywhere<F> {}
        let work = Anywhere(work);
        let boxed: Box<dyn FnOnce() + Send> = Box::new(move || {
            let work = work;
            (work.0)();
        });
        // SAFETY: the caller of `defer` allows the work to outlive what it borrows.
        let boxed = unsafe {
            std::mem::transmute::<Box<dyn FnOnce() + Send + '_>, Box<dyn FnOnce() + Send + 'static>>(boxed)
        };
        self.0.lock().unwrap().push(boxed);
    }

    fn flush(&self) {}
}

impl Epoch {
    fn end(&self) {
        self.0.lock().unwrap().drain(..).for_each(|work| work());
    }
}

#[test]
fn slot_1_slot_2_a_loaded_block_is_whole_and_is_freed_once() {
    model(|| {
        let dropped = Arc::new(AtomicUsize::new(0));
        let slot = Arc::new(Slot::<Block>::empty());
        let epoch = Epoch::default();
        let reader = {
            let (slot, epoch) = (slot.clone(), epoch.clone());
            loom::thread::spawn(move || {
                if let Some(block) = slot.load(&epoch).map(|block| block.to_arc()) {
                    assert!(matches!(block.read(), 1 | 2));
                }
            })
        };
        let hand = {
            let (slot, epoch) = (slot.clone(), epoch.clone());
            loom::thread::spawn(move || {
                // The first pass clears the access bit that a reader may have set; the second evicts.
                (0..2)
                    .filter_map(|_| slot.tick(Moment::after(0), &epoch, |block| u64::from(block.read())))
                    .count()
            })
        };
        let mut inserted = 0;
        for content in [1, 2] {
            inserted += usize::from(slot.insert(Block::new(content, &dropped), std::ptr::null(), false));
        }
        reader.join().unwrap();
        let evicted = hand.join().unwrap();
        epoch.end();
        drop(slot);
        assert!(inserted >= 1 && evicted <= inserted);
        assert_eq!(dropped.load(Ordering::Relaxed), 2, "each block is freed once, refused ones included");
    });
}

#[test]
fn slot_2_two_hands_take_a_block_out_once() {
    model(|| {
        let dropped = Arc::new(AtomicUsize::new(0));
        let slot = Arc::new(Slot::<Block>::empty());
        let epoch = Epoch::default();
        assert!(slot.insert(Block::new(1, &dropped), std::ptr::null(), true));
        let hand = |slot: Arc<Slot<Block>>, epoch: Epoch| {
            move || {
                (0..2)
                    .filter_map(|_| slot.tick(Moment::after(0), &epoch, |block| u64::from(block.read())))
                    .sum::<u64>()
            }
        };
        let other = loom::thread::spawn(hand(slot.clone(), epoch.clone()));
        let taken = hand(slot.clone(), epoch.clone())() + other.join().unwrap();
        assert_eq!(taken, 1, "block_cache.1: its size is counted out once");
        assert!(slot.peek(&epoch).is_none());
        epoch.end();
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn slot_2_a_hand_and_an_owner_that_goes_take_a_block_out_once() {
    model(|| {
        let dropped = Arc::new(AtomicUsize::new(0));
        let slot = Arc::new(Slot::<Block>::empty());
        let epoch = Epoch::default();
        assert!(slot.insert(Block::new(1, &dropped), std::ptr::null(), false));
        let hand = {
            let (slot, epoch) = (slot.clone(), epoch.clone());
            loom::thread::spawn(move || {
                slot.tick(Moment::after(0), &epoch, |block| u64::from(block.read())).unwrap_or(0)
            })
        };
        // SAFETY: no reader has loaded the block.
        let own = unsafe { slot.take() }.map_or(0, |block| u64::from(block.read()));
        assert_eq!(own + hand.join().unwrap(), 1, "block_cache.1: its size is counted out once");
        epoch.end();
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn canary_sl1_a_block_without_release_is_found() {
    let _broken = Broken::new(Fault::BlockNotReleased);
    slot_1_slot_2_a_loaded_block_is_whole_and_is_freed_once();
}
