//! The root of a large table's index: finds the page of the index that finds the block.
//!
//! ```text
//!   key --root--> page --page: an index of some blocks--> block
//!
//!   root:   | page 0: length, blocks' bytes | page 1: length, blocks' bytes, separator | ...
//!   pages:  [ blocks 0..n ] [ blocks n..2n ] ... [ the others, at most n ]
//! ```
//!
//! - Pages have equally many blocks, except the last, which has at most as many. Page and root agree
//!   about the number and the bytes of the page's blocks.
//!
//! The index of the pages has the form of an index of blocks: the separator of a page is that of its first
//! block.
//!
//! Bytes: docs/formats/sstable.md

use std::ops::Range;
use std::sync::Arc;

use super::footer::Footer;
use super::index::{self, Edge, Index, IndexEntry, IndexLimits, PagePosition};
use super::parts::Parts;
use crate::encoding::bytes::{ByteReader, DecodeError, Decoded, put_varint};
use crate::types::key::common_prefix_len;
use crate::types::{Error, Result};

/// The root in memory.
pub(crate) struct Root {
    /// The index of the pages.
    pages: Index,
    /// Number of blocks of the table.
    blocks: usize,
    /// Number of blocks of each page but the last.
    page_blocks: usize,
    /// Offset in the file of the first block of each page, and the end of the last block.
    starts: Box<[u64]>,
}

/// Encodes a page.
pub(super) fn encode_page(entries: &[IndexEntry], out: &mut Vec<u8>) {
    let prefix = match entries {
        // The separators after the first must differ from an empty one without the prefix.
        [_, second, .., last] => {
            let shared = common_prefix_len(&second.separator, &last.separator);
            &second.separator[..shared.min(second.separator.len().saturating_sub(1))]
        }
        _ => &[],
    };
    index::encode(prefix, entries, out);
}

/// The pages of a table that is being written.
pub(super) struct RootBuilder {
    page_blocks: usize,
    blocks: usize,
    pages: Vec<IndexEntry>,
    /// Bytes of the blocks of each page.
    block_bytes: Vec<u64>,
}

impl RootBuilder {
    pub(super) fn new(page_blocks: usize) -> Self {
        RootBuilder { page_blocks, blocks: 0, pages: Vec::new(), block_bytes: Vec::new() }
    }

    /// Adds a page of these blocks with its stored length.
    pub(super) fn add(&mut self, entries: &[IndexEntry], stored_len: u64) {
        let Some(IndexEntry { separator, continues, .. }) = entries.first() else { return };
        self.pages.push(IndexEntry { stored_len, separator: separator.clone(), continues: *continues });
        self.blocks += entries.len();
        self.block_bytes.push(entries.iter().map(|entry| entry.stored_len).sum());
    }

    /// Encodes the root. `prefix` must be a prefix of all separators except the first.
    pub(super) fn encode(&self, prefix: &[u8], out: &mut Vec<u8>) {
        index::encode(prefix, &self.pages, out);
        put_varint(out, self.blocks as u64);
        put_varint(out, self.page_blocks as u64);
        self.block_bytes.iter().for_each(|bytes| put_varint(out, *bytes));
    }
}

impl Root {
    /// Decodes the root of pages that start at this offset in the file.
    pub(super) fn decode(bytes: &[u8], pages_start: u64) -> Decoded<Root> {
        let mut reader = ByteReader::new(bytes);
        let position = PagePosition { start: pages_start, ..PagePosition::default() };
        let pages = Index::decode_within(&mut reader, position, IndexLimits::MAX)?;
        let (blocks, page_blocks) = (reader.varint()?, reader.varint()?);
        let is_whole = page_blocks > 0 && blocks.div_ceil(page_blocks) == pages.range().len() as u64;
        if !is_whole || blocks > IndexLimits::MAX.blocks {
            let count = pages.range().len();
            return Err(reader.error(format!("{blocks} blocks, {page_blocks} in a page, in {count} pages")));
        }
        let mut starts = vec![0];
        let mut end = 0_u64;
        for _ in pages.range() {
            let Some(next) = end.checked_add(reader.varint()?) else {
                return Err(reader.error("the blocks are longer than any file"));
            };
            end = next;
            starts.push(end);
        }
        reader.finish()?;
        let (blocks, page_blocks) = (blocks as usize, page_blocks as usize);
        Ok(Root { pages, blocks, page_blocks, starts: starts.into_boxed_slice() })
    }

    /// Reads the root of a table with pages.
    pub(super) fn read(parts: &Parts<'_>, footer: &Footer) -> Result<Root> {
        let root = parts.read("index", &footer.index, |bytes| Root::decode(bytes, footer.pages.start))?;
        if (root.blocks_end(), root.pages_end()) != (footer.blocks_end(), footer.pages.end) {
            let detail =
                format!("its blocks end at {}, its pages at {}", root.blocks_end(), root.pages_end());
            return Err(Error::corrupt("index", parts.path, footer.index.start, detail));
        }
        Ok(root)
    }

    /// Reads a page.
    pub(super) fn read_page(&self, parts: &Parts<'_>, page: usize) -> Result<Index> {
        parts.read("index page", &self.extent(page), |bytes| self.decode_page(page, bytes))
    }

    /// Decodes a page.
    pub(super) fn decode_page(&self, page: usize, bytes: &[u8]) -> Decoded<Index> {
        let position = self.position(page);
        let blocks = position.first..(position.first + self.page_blocks).min(self.blocks);
        let index = Index::decode(bytes, position)?;
        if (index.range(), index.blocks_end()) != (blocks, self.starts[page + 1]) || !index.fits_its_edges() {
            return Err(DecodeError::new(0, "the page does not fit the root"));
        }
        Ok(index)
    }

    fn position(&self, page: usize) -> PagePosition {
        let edge = |page: usize| {
            let separator = self.pages.separator(page)?.concat().into();
            Some(Edge { separator, continues: self.pages.continues(page) })
        };
        PagePosition {
            first: page * self.page_blocks,
            start: self.starts[page],
            before: edge(page).unwrap_or_default(),
            after: edge(page + 1),
        }
    }

    /// Returns the page with the first block that may hold `key`.
    #[inline(always)]
    pub(super) fn find(&self, key: &[u8]) -> usize {
        self.pages.find(key)
    }

    /// Returns the page of a block.
    #[inline(always)]
    pub(super) fn page_of(&self, block: usize) -> usize {
        block / self.page_blocks
    }

    /// Returns the numbers of the pages.
    pub(super) fn pages(&self) -> Range<usize> {
        self.pages.range()
    }

    /// Number of blocks of the table.
    pub(super) fn blocks(&self) -> usize {
        self.blocks
    }

    /// Returns the position of a page in the file.
    pub(super) fn extent(&self, page: usize) -> Range<u64> {
        self.pages.extent(page)
    }

    /// Returns the position of the blocks of a page in the file.
    pub(super) fn blocks_extent(&self, page: usize) -> Range<u64> {
        self.starts[page]..self.starts[page + 1]
    }

    /// Returns the separators between which the keys of a page lie.
    pub(super) fn bounds(&self, page: usize) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
        let separator = |page| self.pages.separator(page).map(|parts| parts.concat());
        (separator(page).filter(|_| page > 0), separator(page + 1))
    }

    /// Returns the end of the last page in the file.
    pub(super) fn pages_end(&self) -> u64 {
        self.pages.blocks_end()
    }

    /// Returns the end of the last block.
    pub(super) fn blocks_end(&self) -> u64 {
        self.starts[self.starts.len() - 1]
    }

    /// Bytes of memory used.
    pub(super) fn size_bytes(&self) -> usize {
        self.pages.size_bytes() + size_of_val(&*self.starts)
    }
}

/// The index of a table in its file: one part, or a root and pages.
pub(super) enum StoredIndex {
    Blocks(Arc<Index>),
    Paged(Box<Root>),
}

impl StoredIndex {
    /// Reads the index, or its root.
    pub(super) fn read(parts: &Parts<'_>, footer: &Footer) -> Result<StoredIndex> {
        match footer.pages.is_empty() {
            true => Index::read(parts, footer).map(|index| StoredIndex::Blocks(Arc::new(index))),
            false => Root::read(parts, footer).map(|root| StoredIndex::Paged(Box::new(root))),
        }
    }

    /// Number of blocks.
    pub(super) fn blocks(&self) -> usize {
        match self {
            StoredIndex::Blocks(index) => index.range().len(),
            StoredIndex::Paged(root) => root.blocks(),
        }
    }

    /// Number of pages. An index without pages counts as one.
    pub(super) fn pages(&self) -> usize {
        match self {
            StoredIndex::Blocks(_) => 1,
            StoredIndex::Paged(root) => root.pages().len(),
        }
    }

    /// Returns a page. Reads it, unless the index has no pages.
    pub(super) fn page(&self, parts: &Parts<'_>, page: usize) -> Result<Arc<Index>> {
        match self {
            StoredIndex::Blocks(index) => Ok(index.clone()),
            StoredIndex::Paged(root) => root.read_page(parts, page).map(Arc::new),
        }
    }

    /// Returns the positions of the pages in the file.
    pub(super) fn page_extents(&self) -> impl Iterator<Item = Range<u64>> {
        let root = match self {
            StoredIndex::Blocks(_) => None,
            StoredIndex::Paged(root) => Some(root),
        };
        root.into_iter().flat_map(|root| root.pages().map(|page| root.extent(page)))
    }
}
