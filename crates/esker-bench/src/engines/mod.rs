//! The engines under test: one file each, listed here.
//!
//! To add one, write `engines/NAME.rs` with a type that implements [`Engine`], and add it to [`ENGINES`]. The tests below
//! then run it through the same small correctness test as the rest. docs/benchmarking.md has the rules.

mod canary;
mod esker;
mod lmdb;
mod redb;
#[cfg(test)]
mod tests;

use canary::Canary;

use crate::store::Engine;

/// In the order in which they take turns and stand in tables.
pub(crate) static ENGINES: &[&dyn Engine] =
    &[&esker::Esker, &lmdb::Lmdb, &redb::Redb, &Canary::Wrong, &Canary::Crash, &Canary::Hang];

/// The engine of that name, hidden ones included.
pub(crate) fn find(name: &str) -> Option<&'static dyn Engine> {
    ENGINES.iter().copied().find(|engine| engine.name() == name)
}

/// The engines that run when none is named.
pub(crate) fn shown() -> impl Iterator<Item = &'static dyn Engine> {
    ENGINES.iter().copied().filter(|engine| !engine.hidden())
}
