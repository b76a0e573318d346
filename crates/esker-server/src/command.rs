//! The specification of commands: what each takes, what it may do, and what it does with which key.
//!
//! ```text
//!   Spec: name arity flags keys uses reaches categories ...
//!     --> dispatch     arity, flags
//!     --> users' rights, COMMAND GETKEYS     keys, uses, reaches, categories
//!     --> COMMAND DOCS, docs/commands.md     usage, summary
//! ```
//!
//! A specification is a line of a table beside the function that does the work. Nothing compares names of
//! commands: whatever makes a command special is a column of its line.

pub mod flag;
pub mod keys;
pub mod not_built;
pub mod reach;
pub mod secrets;
pub mod spec;
pub mod subcommands;
pub mod uses;
