//! Tests of the store: object_store's own, durability, threads.

#![allow(clippy::unwrap_used, missing_docs)]

mod durable;
mod integration;
mod objects;
