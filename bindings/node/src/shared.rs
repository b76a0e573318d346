//! What all handles of a database in one JavaScript thread share.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use esker::{Db, Durability};
use parking_lot::Mutex;

use crate::commits::Commits;
use crate::completion::Completions;
use crate::error::Failure;
use crate::options::OpenOptions;
use crate::registry::Opened;

/// A database, as one JavaScript thread has it open.
pub(crate) struct Shared {
    pub(crate) db: Db,
    /// Nothing after it was closed.
    pub(crate) opened: Mutex<Option<Arc<Opened>>>,
    pub(crate) done: Arc<Completions>,
    pub(crate) commits: Arc<Commits>,
    pub(crate) durability: Durability,
    pub(crate) is_exclusive_by_default: bool,
    /// Exclusive transactions that are open, or wait for their turn.
    pub(crate) exclusive: AtomicUsize,
}

impl Shared {
    /// Opens a database. No path: one in memory.
    pub(crate) fn open(
        done: Arc<Completions>,
        path: Option<&str>,
        options: &OpenOptions,
    ) -> Result<Arc<Shared>, Failure> {
        let opened = options.open(path)?;
        Ok(Arc::new(Shared {
            db: opened.db().clone(),
            opened: Mutex::new(Some(opened)),
            done,
            commits: Arc::default(),
            durability: options.durability()?,
            is_exclusive_by_default: options.isolation.as_deref() == Some("exclusive"),
            exclusive: AtomicUsize::new(0),
        }))
    }
}
