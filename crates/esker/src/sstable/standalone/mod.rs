//! Tables without a database: the public interface of this module. Each file wraps a part of the engine.
//!
//! ```text
//!   put(key, value) --Writer--> file --Reader--> get, range        Readers --merge--> Writer
//! ```

mod merge;
mod reader;
mod writer;

pub use merge::merge;
pub use reader::{Entries, Metadata, Range, Reader};
pub use writer::Writer;

#[cfg(test)]
mod tests;
