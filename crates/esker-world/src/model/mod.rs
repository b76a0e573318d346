//! The model: what the database must hold, in numbers instead of bytes.
//!
//! ```text
//!   keys.rs, values.rs   numbers <-> bytes
//!   state.rs             keyspaces, maps, and a digest of both
//!   timed.rs             a state in which entries expire, beside what readers see of it
//!   footprint.rs         what a commit touched: decides conflicts
//!   history.rs           the commits since the last opening, and which of them a crash may take
//! ```

pub mod footprint;
pub mod history;
pub mod keys;
pub mod state;
pub mod timed;
pub mod values;
