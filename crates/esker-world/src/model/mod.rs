//! The model of the database's contents, with numbers instead of bytes.
//!
//! ```text
//!   keys.rs, values.rs   numbers <-> bytes
//!   map.rs, state.rs     the entries of a keyspace; all keyspaces; digests of both
//!   timed.rs             a state with expiry, and what readers see of it
//!   footprint.rs         the keys of a commit, which decide conflicts
//!   history.rs           the commits since the last opening, and which of them a crash may lose
//! ```

pub mod footprint;
pub mod history;
pub mod keys;
pub mod map;
pub mod state;
pub mod timed;
pub mod values;
