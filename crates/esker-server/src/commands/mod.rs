//! The commands: tables of specifications, and the functions that implement them.

mod acl;
mod bit_fields;
mod bits;
mod connection;
mod dump;
mod elections;
mod expiry;
#[cfg(feature = "lua")]
mod functions;
mod geo;
mod hash_fields;
mod hashes;
mod held;
mod hyper_log_logs;
mod info;
mod inside;
mod keys;
mod latency;
mod lcs;
mod list_pops;
mod lists;
#[cfg(feature = "lua")]
mod lua;
mod operations;
mod ordered;
mod pubsub;
mod replication;
mod restore;
mod rows;
mod scan;
mod scripts;
mod server;
mod sets;
mod slots;
mod sort;
mod sorted_sets;
mod stream_claims;
mod stream_deletes;
mod stream_groups;
mod stream_info;
mod stream_trim;
mod streams;
mod string_conditions;
mod strings;
mod table;
mod tracking;
mod transactions;
pub mod verify;
mod words;

pub use self::replication::awaited;
pub use self::slots::{ShownSlot, shown_slots};
#[cfg(test)]
pub(crate) use self::table::command_of;
pub use self::table::{commands, commands_document, specs};
