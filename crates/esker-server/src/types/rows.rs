//! Tables of keys with columns: the model of obigstore.
//!
//! ```text
//!   keyspace ob.<name>:  table, key, column --> timestamp, data
//!
//!   OB commands --reads--> Source: one state, walked with skips
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `codec` | stored keys and values: docs/formats/obigstore.md |
//! | `condition`, `walk`, `slice` | reads |

pub mod codec;
pub mod condition;
pub mod slice;
pub mod walk;

/// Prefix of the names of keyspaces with rows.
pub const PREFIX: &str = "ob.";
