//! One memory budget for the whole engine, and the cache of decoded blocks that lives on what the rest leaves.
//!
//! ```text
//!   memtables, indexes, filters --reserve--> MemoryBudget <--used-- BlockCache --clock--> evicts from
//!                                                                      |
//!   table --owns--> SlotTable: one pointer per block <--registered-----'
//!             reader: pin, load the pointer, use the block                (no hash table, no lock, no shared counter)
//! ```
//!
//! A block is found through a pointer in its table's own directory ("swizzling", as in LeanStore), so a hit costs one
//! load; memory is reclaimed by epochs (`crossbeam-epoch`).
//!
//! Start with `slot.rs`, then `block_cache.rs`, then `budget.rs`.

mod block_cache;
mod budget;
#[cfg(all(test, loom))]
mod models;
mod slot;

pub(crate) use crate::sync::pin;
pub(crate) use block_cache::{BlockCache, CacheItem, CachedBlocks};
pub(crate) use budget::{BudgetKind, MemoryBudget, Reservation};
pub(crate) use crossbeam_epoch::Guard;
pub(crate) use slot::Pinned;
