//! Libraries of functions: what the database holds of them.
//!
//! ```text
//!   es.functions:  name --> source      a library
//!                  ""   --> generation  another one after each change
//! ```
//!
//! The records are part of the data: transactions, replicas, checkpoints and backups have them. An
//! interpreter and the list of functions belong to a generation. They are made again once the database has
//! another one.

#[cfg(feature = "lua")]
use crate::store::{Reads, Result, Space, Store};

/// The keyspace of the libraries.
pub const KEYSPACE: &str = "es.functions";
/// The key of the generation. Names of libraries are not empty.
pub const GENERATION_KEY: &[u8] = b"";

/// A function.
#[derive(Clone, Debug)]
pub struct Function {
    pub name: String,
    pub description: Option<Vec<u8>>,
    pub flags: Vec<&'static str>,
    /// Whether the source of its library names `SWAPDB`, which must be the first command of its commit.
    pub names_exchange: bool,
}

impl Function {
    /// Returns whether it promises to write nothing.
    pub fn only_reads(&self) -> bool {
        self.flags.contains(&"no-writes")
    }
}

/// A library.
#[derive(Clone, Debug)]
pub struct Library {
    pub name: String,
    /// As the client sent it.
    pub source: Vec<u8>,
    /// Empty if the source cannot be loaded by this server.
    pub functions: Vec<Function>,
}

/// All libraries of a generation, by name.
#[derive(Clone, Debug, Default)]
pub struct Libraries {
    pub generation: Vec<u8>,
    pub all: Vec<Library>,
}

impl Libraries {
    /// Returns a function.
    pub fn find(&self, name: &[u8]) -> Option<&Function> {
        self.all.iter().flat_map(|library| &library.functions).find(|known| known.name.as_bytes() == name)
    }
}

/// Returns the generation that a command sees, and the keyspace. Empty: there are no libraries.
///
/// # Errors
/// Errors of the store.
#[cfg(feature = "lua")]
pub fn generation(store: &dyn Store, reads: &dyn Reads) -> Result<(Vec<u8>, Option<Space>)> {
    let Some(space) = store.find_space(KEYSPACE)? else { return Ok((Vec::new(), None)) };
    let generation = reads.get(&space, GENERATION_KEY)?;
    Ok((generation.map_or(Vec::new(), |bytes| bytes.to_vec()), Some(space)))
}

/// Returns what is wrong with a record of the keyspace.
pub fn problem(name: &[u8], source: &[u8]) -> Option<&'static str> {
    match name.is_empty() {
        true if source.len() != 16 => Some("the generation of the libraries is no number"),
        false if !source.starts_with(b"#!") => Some("the source of a library has no first line"),
        _ => None,
    }
}
