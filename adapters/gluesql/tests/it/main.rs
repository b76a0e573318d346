//! Tests of the storage: GlueSQL's test suite, and what survives, conflicts and reopens.

#![allow(clippy::unwrap_used, missing_docs)]

mod durable;
mod suite;
