//! The interpreter of scripts: Luau, with the library names of Lua 5.1. `commands/lua.rs` connects it with
//! the server's commands.
//!
//! - A script cannot access files, clocks except the processor time, or the variables of other scripts. It
//!   changes nothing that a later script sees: all tables that outlive it are read-only.
//!
//! lua.2. Every script ends. After the time limit, or when it is killed, each of its steps fails. Its writes
//!     are undone then (run/parts.rs).
//!
//! - The memory of a script is bounded, both in the interpreter and for each text created outside of it.
//!   An interpreter is discarded if its script was ended, or if it holds much memory.

mod bit;
pub mod convert;
pub mod errors;
mod json;
pub mod library;
pub mod limits;
pub mod machine;
mod msgpack;
mod structs;
