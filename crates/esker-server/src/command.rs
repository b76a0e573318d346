//! The specification of commands: their arguments, their rights, and how they use their keys.
//!
//! ```text
//!   Spec: name arity flags keys uses reaches categories ...
//!     --> dispatch     arity, flags
//!     --> users' rights, COMMAND GETKEYS     keys, uses, reaches, categories
//!     --> COMMAND DOCS, docs/commands.md     usage, summary
//! ```
//!
//! A specification is one line of a table, next to the function that does the work. No code compares names of
//! commands: every special property of a command is a column of the table.

pub mod flag;
pub mod keys;
pub mod not_built;
pub mod reach;
pub mod secrets;
pub mod spec;
pub mod subcommands;
pub mod uses;
