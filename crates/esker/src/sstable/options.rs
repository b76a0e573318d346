//! Options for writing a table.

/// Compression of the blocks of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum TableCompression {
    /// LZ4 if it saves an eighth of the first blocks, otherwise none.
    #[default]
    Auto,
    /// No compression.
    None,
    /// LZ4.
    Lz4,
    /// Zstandard. Needs the `zstd` feature.
    #[cfg(feature = "zstd")]
    Zstd,
}

/// Options for writing a table. Readers do not need them: a table is self-describing.
#[derive(Clone, Debug)]
pub struct TableOptions {
    /// Size of a data block before compression, in bytes. A larger entry gets a block of its own.
    pub block_bytes: usize,
    /// Compression of the blocks.
    pub compression: TableCompression,
    /// Filter bits per key. With 10, one absent key in a hundred passes; 0 disables the filter.
    pub filter_bits_per_key: u32,
    /// Blocks whose values have a larger mean size, in bytes, store keys and values separately, so that
    /// searches and iteration over keys touch less memory. Such a block is still read and verified as a
    /// whole.
    pub split_values_over: usize,
    /// Whether to bypass the page cache of the operating system where possible.
    pub direct_io: bool,
    /// Blocks in a page of the index. A table of more than twice as many has pages.
    #[doc(hidden)]
    pub page_blocks: usize,
}

impl Default for TableOptions {
    fn default() -> Self {
        TableOptions {
            block_bytes: 8192,
            compression: TableCompression::Auto,
            filter_bits_per_key: 10,
            split_values_over: 256,
            direct_io: false,
            page_blocks: 256,
        }
    }
}
