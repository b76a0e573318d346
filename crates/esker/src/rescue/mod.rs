//! Tools for databases that are damaged, or may be.
//!
//! ```text
//!   check   everything that must agree, of an open database or of its files
//!   repair  what can be read of a damaged database, into a new one
//!   dump    the contents of a file
//!   destroy the files of a database are removed
//! ```

pub(crate) mod check;
pub(crate) mod destroy;
pub(crate) mod dump;
pub(crate) mod repair;
