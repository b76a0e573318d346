//! One memory budget for the whole engine, and a cache of decoded blocks that uses what the other parts
//! leave.
//!
//! ```text
//!   memtables, indexes, filters --reserve--> MemoryBudget <--used-- BlockCache --clock--> evicts from
//!                                                                      |
//!   table --owns--> SlotTable: one pointer per block <--registered-----'
//!             reader: pin, load the pointer, use the block
//! ```
//!
//! A table owns a directory with one pointer per block ("swizzling", as in LeanStore), so a hit costs one
//! load. Memory is reclaimed by epochs (`crossbeam-epoch`).
//!
//! Files in reading order: `slot.rs`, `block_cache.rs`, `budget.rs`.

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
