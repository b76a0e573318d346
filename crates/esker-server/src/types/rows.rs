//! Tables of keys with columns: obigstore's model.
//!
//! ```text
//!   keyspace ob.<name>:  table, key, column --> timestamp, data
//!
//!   OB commands --reads--> Source: a state, walked with skips
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

/// Names of the keyspaces of rows begin so.
pub const PREFIX: &str = "ob.";
