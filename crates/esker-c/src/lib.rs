//! The C API of Esker.
//!
//! ```text
//!   C program --esker.h--> status + error <-- call.rs (catches panics) <-- one file per kind of handle
//! ```
//!
//! - Each function is `extern "C"`, and its documentation is that of the C function: `include/esker.h` is
//!   made of it by cbindgen (`cargo xtask header`).
//! - A handle is a Rust value in a box, which C sees as a pointer to an opaque type. Nullable pointers are
//!   `Option<&T>`, so Rust checks them for `NULL`. `slice.rs` alone reads and writes memory of the caller.
//! - A call that fails returns a status and, if asked, an error. No panic leaves a call.
#![allow(non_camel_case_types, reason = "the names of types are those of the C API")]
#![allow(unsafe_code, reason = "`no_mangle` counts as unsafe; `unsafe` blocks are in slice.rs only")]
#![allow(clippy::must_use_candidate, reason = "callers are C programs")]

mod call;
mod db;
mod error;
mod feed;
mod iter;
mod keyspace;
mod options;
mod read;
mod slice;
mod status;
mod tuple;
mod txn;
mod write;
