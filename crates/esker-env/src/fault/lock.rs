//! A lock whose looks at its own name are calls that can fail.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{OpKind, Shared};
use crate::FileLock;

/// A lock of the file system beneath.
#[derive(Debug)]
pub(super) struct FaultLock {
    inner: Box<dyn FileLock>,
    shared: Arc<Shared>,
    path: PathBuf,
}

impl FaultLock {
    pub(super) fn over(inner: Box<dyn FileLock>, shared: &Arc<Shared>, path: &Path) -> Box<dyn FileLock> {
        Box::new(FaultLock { inner, shared: shared.clone(), path: path.to_owned() })
    }
}

impl FileLock for FaultLock {
    fn is_in_place(&self) -> io::Result<bool> {
        self.shared.check(OpKind::Stat, &[&self.path])?;
        self.inner.is_in_place()
    }
}
