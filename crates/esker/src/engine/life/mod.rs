//! The life of a database: how it is opened, what its threads do, how it is copied, and how it closes.

pub(crate) mod background;
pub(crate) mod committing;
pub(crate) mod copies;
pub(crate) mod exclusive;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub(crate) mod handle;
pub(crate) mod ingest;
pub(crate) mod look;
pub(crate) mod open;
pub(crate) mod owner;
mod replay;
