//! Databases that several JavaScript threads of this process have open together: the option
//! `multithreading`.
//!
//! registry.1. A database is closed when the last of its threads closes it.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use esker::Db;
use parking_lot::Mutex;

use crate::error::Failure;

static OPEN: Mutex<Option<HashMap<PathBuf, Weak<Opened>>>> = Mutex::new(None);

/// An open database. One for each, whatever the number of threads.
pub(crate) struct Opened {
    db: Db,
    /// Its place in the registry, if it is there.
    path: Option<PathBuf>,
}

impl Opened {
    /// Opens a database for one thread.
    pub(crate) fn alone(db: Db) -> Arc<Opened> {
        Arc::new(Opened { db, path: None })
    }

    /// Returns the database in a directory that another thread has open, or opens it.
    pub(crate) fn together(
        directory: &str,
        open: impl FnOnce() -> Result<Db, Failure>,
    ) -> Result<Arc<Opened>, Failure> {
        let mut registry = OPEN.lock();
        let registry = registry.get_or_insert_default();
        registry.retain(|_, opened| opened.strong_count() > 0);
        if let Ok(path) = std::fs::canonicalize(directory)
            && let Some(opened) = registry.get(&path).and_then(Weak::upgrade)
        {
            return Ok(opened);
        }
        let db = open()?;
        let path = std::fs::canonicalize(directory).ok();
        let opened = Arc::new(Opened { db, path: path.clone() });
        if let Some(path) = path {
            registry.insert(path, Arc::downgrade(&opened));
        }
        Ok(opened)
    }

    pub(crate) fn db(&self) -> &Db {
        &self.db
    }

    /// Ends the use by one thread.
    pub(crate) fn close(self: Arc<Self>) -> esker::Result<()> {
        let db = self.db.clone();
        let mut registry = OPEN.lock();
        // registry.1: of two that close at once, the second finds itself alone.
        if Arc::strong_count(&self) > 1 {
            drop(self);
            drop(registry);
            return db.sync();
        }
        if let (Some(path), Some(registry)) = (&self.path, registry.as_mut()) {
            registry.remove(path);
        }
        db.close()
    }
}
