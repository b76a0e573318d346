//! Tables without a database: the public face of this module. Each file wraps one of the engine's own parts.
//!
//! ```text
//!   put(key, value) --Writer--> file --Reader--> get, range        Readers --merge--> Writer
//! ```

mod merge;
mod reader;
mod writer;

pub use merge::merge;
pub use reader::{Metadata, Range, Reader};
pub use writer::Writer;

#[cfg(test)]
mod tests;
