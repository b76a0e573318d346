//! Reads that only use memory: a scope of a thread in which reads of files are refused.
//!
//! ```text
//!   memory_only(reads) --block, index, value not cached--> check: fails, notes the miss --> None
//! ```
//!
//! memory_only.1. Code that reads a file of tables or values, or waits for a thread that does, calls
//!     [`check`] first. Within a scope no other thread reads for this one.

use std::cell::Cell;
use std::io;
use std::path::Path;

use super::{Error, Result};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// The thread may read files.
    None,
    /// Nothing had to be read from a file.
    Open,
    /// Something had to be read from a file.
    Missed,
}

thread_local!(static SCOPE: Cell<Scope> = const { Cell::new(Scope::None) });

/// Returns to the outer scope, even in a panic.
struct Restore(Scope);

impl Drop for Restore {
    fn drop(&mut self) {
        SCOPE.set(self.0);
    }
}

/// Runs reads of this thread that may not read files. Returns `None` if memory alone did not answer them: run
/// them again where blocking is allowed. An iterator that was used then has to be made again.
///
/// For threads that must not block. [`Keyspace::get_if_cached`](crate::Keyspace::get_if_cached) does this for
/// one key.
///
/// ```
/// # fn main() -> esker::Result<()> {
/// let map = esker::Db::in_memory()?.default_keyspace();
/// map.put("a", "1")?;
/// let first = esker::memory_only(|| map.range("a"..).take(10).collect::<esker::Result<Vec<_>>>());
/// assert_eq!(first.unwrap()?.len(), 1);
/// # Ok(())
/// # }
/// ```
pub fn memory_only<R>(reads: impl FnOnce() -> R) -> Option<R> {
    let (found, has_missed) = noting_misses(reads);
    (!has_missed).then_some(found)
}

/// Runs work in a scope. Returns whether it had to read a file, too.
pub(crate) fn noting_misses<R>(work: impl FnOnce() -> R) -> (R, bool) {
    let _outer = Restore(SCOPE.replace(Scope::Open));
    let done = work();
    (done, has_missed())
}

/// Returns whether this thread may not read files.
pub(crate) fn is_on() -> bool {
    SCOPE.get() != Scope::None
}

/// Returns whether something in the current scope had to be read from a file.
pub(crate) fn has_missed() -> bool {
    SCOPE.get() == Scope::Missed
}

/// Fails if this thread may not read files (memory_only.1).
pub(crate) fn check(path: &Path) -> Result<()> {
    if !is_on() {
        return Ok(());
    }
    SCOPE.set(Scope::Missed);
    Err(Error::io("read, outside of memory,", path, io::ErrorKind::WouldBlock.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_only_1_a_miss_concerns_its_scope() {
        let read = || check(Path::new("file")).is_ok();
        assert!(read());
        assert_eq!(memory_only(|| 1), Some(1));
        assert_eq!(memory_only(read), None);
        assert_eq!(memory_only(|| memory_only(read).is_none()), Some(true));
        assert_eq!(memory_only(|| [read(), memory_only(|| 2) == Some(2)]), None);
        let panicked = std::panic::catch_unwind(|| memory_only(|| panic!("canary")));
        assert!(panicked.is_err() && read());
    }
}
