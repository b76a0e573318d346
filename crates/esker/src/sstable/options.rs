//! How a table is written.

/// Which codec compresses the blocks of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum TableCompression {
    /// LZ4, if it saves an eighth of the first blocks; else none.
    #[default]
    Auto,
    /// Blocks are stored as they are.
    None,
    /// LZ4.
    Lz4,
    /// Zstandard. Needs the `zstd` feature.
    #[cfg(feature = "zstd")]
    Zstd,
}

/// How a table is written. Readers need none of this: a table says itself what it is.
#[derive(Clone, Debug)]
pub struct TableOptions {
    /// The size of a data block before compression, in bytes. An entry that is larger is a block of its own.
    pub block_bytes: usize,
    /// Which codec compresses the blocks.
    pub compression: TableCompression,
    /// Bits of filter for each key: 10 let one absent key in a hundred pass; 0 means no filter.
    pub filter_bits_per_key: u32,
    /// Blocks whose values have a larger mean size, in bytes, keep keys and values apart, so that searches and walks over keys
    /// find the keys side by side in memory. A block is read and checked as a whole all the same.
    pub split_values_over: usize,
    /// Write past the operating system's page cache where it allows it.
    pub direct_io: bool,
}

impl Default for TableOptions {
    fn default() -> Self {
        TableOptions {
            block_bytes: 8192,
            compression: TableCompression::Auto,
            filter_bits_per_key: 10,
            split_values_over: 256,
            direct_io: false,
        }
    }
}
