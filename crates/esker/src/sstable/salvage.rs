//! Reads a damaged table as far as possible: the parts named by its footer, and the blocks named by its
//! index.
//!
//! ```text
//!   file --footer--> parts --index--> extents of blocks --> SalvageScan --> entries in order
//!            `---------`----------------------------------`--> TableDamage: what, where, which keys
//! ```
//!
//! The positions of parts and blocks come only from the footer and the index. Without a valid footer nothing
//! can be read; without a valid index only the range tombstones; without a page of the index not its blocks.
//!
//! - Entries are returned in the order of a table: key ascending, then sequence number descending. An entry
//!   out of order is reported and skipped.
//! - All damage is reported: each part and each block that is not valid.
//!
//! Everything is verified by its checksum before use. No input causes a panic, or an allocation larger than
//! the file: a footer names only parts inside the file, and an index only blocks before the other parts.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_env::{Env, File, OpenOptions};

use super::block::Block;
use super::footer::Footer;
use super::index::Index;
use super::parts::{Parts, parse_block, read_footer, read_stored};
use super::properties::{Properties, decode_tombstones};
use super::root::StoredIndex;
use super::stored::{self, Fingerprint, PartOpener, TRAILER_BYTES};
use crate::encoding::bloom::BlockedBloom;
use crate::types::entry::EntryRef;
use crate::types::range_tombstone::RangeTombstones;
use crate::types::{Error, Result, SeqNo};

/// A damaged part of a table.
#[derive(Debug)]
pub(crate) struct TableDamage {
    /// The error, with file and offset.
    pub error: Error,
    /// Start of the lost bytes. The offset in the error may be larger.
    pub start: u64,
    /// Number of lost bytes.
    pub bytes: u64,
    /// The lost content.
    pub lost: LostContent,
}

/// Content lost because of damage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LostContent {
    /// No entries. The damage is in the filter or the properties, which only describe entries.
    Nothing,
    /// Versions of keys in this range, bounds included. `None`: from the beginning, or to the end, of the
    /// table. Keys removed by lost range tombstones may reappear.
    Keys(Option<Vec<u8>>, Option<Vec<u8>>),
}

const ALL_KEYS: LostContent = LostContent::Keys(None, None);

/// A damaged table.
pub(crate) struct SalvageTable {
    path: PathBuf,
    file: Arc<dyn File>,
    footer: Option<Footer>,
    opener: PartOpener,
    index: Option<StoredIndex>,
    /// The pages of the index that can be read. An index without pages is one.
    pages: Vec<Arc<Index>>,
    /// The blocks of these pages: the page, and the number in the table.
    blocks: Vec<(usize, usize)>,
    /// Statistics and limits, if readable.
    pub(crate) properties: Option<Properties>,
    /// The range tombstones, if readable.
    pub(crate) tombstones: RangeTombstones,
    /// Damage found outside of blocks.
    pub(crate) damage: Vec<TableDamage>,
}

impl SalvageTable {
    /// Reads everything except the blocks. Fails only if the file cannot be opened or has a newer format.
    pub(crate) fn open(env: &Env, path: &Path) -> Result<SalvageTable> {
        let file = env.fs.open(path, OpenOptions::read()).map_err(|e| Error::io("open", path, e))?;
        let file_bytes = file.len().map_err(|e| Error::io("measure", path, e))?;
        let mut table = SalvageTable {
            path: path.to_owned(),
            file,
            footer: None,
            opener: PartOpener::default(),
            index: None,
            pages: Vec::new(),
            blocks: Vec::new(),
            properties: None,
            tombstones: RangeTombstones::default(),
            damage: Vec::new(),
        };
        match read_footer(env, (&*table.file, path), file_bytes) {
            Ok((footer, opener)) => {
                table.footer = Some(footer.clone());
                table.opener = opener;
                table.read_parts(&footer);
            }
            Err(error @ (Error::UnsupportedVersion { .. } | Error::Encryption { .. })) => return Err(error),
            Err(error) => table.note(error, 0..file_bytes, ALL_KEYS),
        }
        Ok(table)
    }

    fn note(&mut self, error: Error, lost: Range<u64>, content: LostContent) {
        let Range { start, end } = lost;
        self.damage.push(TableDamage { error, start, bytes: end - start, lost: content });
    }

    fn read_parts(&mut self, footer: &Footer) {
        let Footer { properties, filter, tombstones, index, .. } = footer;
        let (file, path, opener) = (self.file.clone(), self.path.clone(), self.opener.clone());
        let parts = Parts { file: &*file, path: &path, opener: &opener };
        match parts.read("properties", properties, Properties::decode) {
            Ok(properties) => self.properties = Some(properties),
            Err(error) => self.note(error, properties.clone(), LostContent::Nothing),
        }
        if !filter.is_empty()
            && let Err(error) = parts.read("filter", filter, BlockedBloom::decode)
        {
            self.note(error, filter.clone(), LostContent::Nothing);
        }
        if !tombstones.is_empty() {
            match parts.read("range tombstones", tombstones, decode_tombstones) {
                Ok(tombstones) => self.tombstones = tombstones,
                Err(error) => self.note(error, tombstones.clone(), ALL_KEYS),
            }
        }
        let blocks = 0..tombstones.start;
        match StoredIndex::read(&parts, footer) {
            Ok(index) => {
                (0..index.pages()).for_each(|page| self.read_page(&parts, &index, page));
                self.index = Some(index);
            }
            Err(error) if blocks.is_empty() => self.note(error, index.clone(), LostContent::Nothing),
            Err(error) => self.note(error, blocks, ALL_KEYS),
        }
    }

    fn read_page(&mut self, parts: &Parts<'_>, index: &StoredIndex, page: usize) {
        match index.page(parts, page) {
            Ok(page) => {
                self.blocks.extend(page.range().map(|number| (self.pages.len(), number)));
                self.pages.push(page);
            }
            Err(error) => {
                let StoredIndex::Paged(root) = index else { return };
                let (start, end) = root.bounds(page);
                let lost = self.keys_between(start, end);
                self.note(error, root.blocks_extent(page), lost);
            }
        }
    }

    /// Returns the keys between two separators. `None`: the bounds of the table.
    fn keys_between(&self, start: Option<Vec<u8>>, end: Option<Vec<u8>>) -> LostContent {
        let range = self.properties.as_ref().map(|properties| &properties.range);
        let start = start.or_else(|| range.map(|range| range.start.clone()));
        LostContent::Keys(start, end.or_else(|| range.map(|range| range.end.key().to_vec())))
    }

    /// Returns the newest commit in the table, if the footer is valid.
    pub(crate) fn newest_commit(&self) -> Option<SeqNo> {
        self.footer.as_ref().map(|footer| footer.newest_commit)
    }

    /// Returns the parts after the blocks, by name, if the footer is valid.
    pub(crate) fn parts(&self) -> Vec<(&'static str, Range<u64>)> {
        let Some(footer) = &self.footer else { return Vec::new() };
        let (footer_end, Footer { tombstones, filter, pages, index, properties, .. }) =
            (footer.end(), footer.clone());
        let end = properties.end;
        vec![
            ("range tombstones", tombstones),
            ("filter", filter),
            ("index pages", pages),
            ("index", index),
            ("properties", properties),
            ("footer", end..footer_end),
        ]
    }

    /// Returns the fingerprint of its parts, including damaged ones. `None` if their positions are unknown.
    pub(crate) fn fingerprint(&self) -> Option<Fingerprint> {
        let (Some(index), Some(footer)) = (&self.index, &self.footer) else { return None };
        if self.pages.len() < index.pages() {
            return None;
        }
        let blocks = (0..self.blocks()).map(|block| self.extent(block));
        let others = [footer.tombstones.clone(), footer.filter.clone()].into_iter();
        let others = others.chain(index.page_extents()).chain([footer.index.clone()]);
        let mut fingerprint = Fingerprint::default();
        for part in blocks.chain(others.filter(|part| !part.is_empty())) {
            let trailer = part.end.checked_sub(TRAILER_BYTES as u64)?..part.end;
            fingerprint = fingerprint.with_part(&read_stored(&*self.file, &self.path, trailer).ok()?);
        }
        Some(fingerprint)
    }

    /// Number of blocks in the readable parts of the index. The methods below number these.
    pub(crate) fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Returns the part of the index with a block, and the number of the block in the table.
    fn place(&self, number: usize) -> (&Index, usize) {
        let (page, number) = self.blocks[number];
        (&self.pages[page], number)
    }

    /// Returns the position of a block.
    ///
    /// # Panics
    /// If the index does not contain it.
    pub(crate) fn extent(&self, number: usize) -> Range<u64> {
        let (index, number) = self.place(number);
        index.extent(number)
    }

    /// Returns the separator of a block, and whether its first key is also the last key of the block before.
    pub(crate) fn separator(&self, number: usize) -> (Vec<u8>, bool) {
        let (index, number) = self.place(number);
        (index.separator(number).unwrap_or_default().concat(), index.continues(number))
    }

    /// Returns the first key that may be in the table, as far as known.
    pub(crate) fn lower_bound(&self) -> Vec<u8> {
        self.properties.as_ref().map_or_else(Vec::new, |properties| properties.range.start.clone())
    }

    fn block(&self, number: usize) -> Result<Block> {
        let extent = self.extent(number);
        let start = extent.start;
        let stored = read_stored(&*self.file, &self.path, extent)?;
        let block = parse_block(self.opener.open(&stored, start), stored::is_packed(&stored));
        block.map_err(|e| e.in_file("block", &self.path, start))
    }

    /// Returns the keys that a block may hold.
    fn keys_of(&self, number: usize) -> LostContent {
        let (index, number) = self.place(number);
        let separator = |number| index.separator(number).map(|parts| parts.concat());
        self.keys_between(separator(number).filter(|_| number > 0), separator(number + 1))
    }

    /// Returns a scan of all readable entries in order.
    pub(crate) fn scan(self) -> SalvageScan {
        SalvageScan {
            table: self,
            next_block: 0,
            block: None,
            next_entry: 0,
            key: Vec::new(),
            last: None,
            blocks_read: 0,
            damage: Vec::new(),
        }
    }
}

/// A scan of all readable entries.
pub(crate) struct SalvageScan {
    table: SalvageTable,
    next_block: usize,
    block: Option<Block>,
    next_entry: usize,
    key: Vec<u8>,
    /// The previous entry.
    last: Option<(Vec<u8>, SeqNo)>,
    /// Number of valid blocks.
    pub(crate) blocks_read: u64,
    /// Damage found by the scan, besides [`SalvageTable::damage`].
    pub(crate) damage: Vec<TableDamage>,
}

impl SalvageScan {
    /// Moves to the next entry. Returns false at the end.
    pub(crate) fn advance(&mut self) -> bool {
        loop {
            while self.block.as_ref().is_none_or(|block| self.next_entry >= block.count()) {
                if self.next_block >= self.table.blocks() {
                    self.block = None;
                    return false;
                }
                self.enter_next();
            }
            let block = self.block.as_ref().expect("the loop above ends with a block");
            let entry = self.next_entry;
            self.next_entry += 1;
            self.key.truncate(block.prefix().len());
            block.push_suffix(entry, &mut self.key);
            let seq = block.seq(entry);
            let in_order = match &self.last {
                None => true,
                Some((key, last)) => match self.key.as_slice().cmp(key.as_slice()) {
                    std::cmp::Ordering::Greater => true,
                    std::cmp::Ordering::Equal => seq < *last,
                    std::cmp::Ordering::Less => false,
                },
            };
            if in_order {
                let (mut key, _) = self.last.take().unwrap_or_default();
                key.clear();
                key.extend_from_slice(&self.key);
                self.last = Some((key, seq));
                return true;
            }
            let start = self.table.extent(self.next_block - 1).start;
            let error = Error::corrupt("block", &self.table.path, start, "entries are out of order");
            let lost = LostContent::Keys(Some(self.key.clone()), Some(self.key.clone()));
            self.damage.push(TableDamage { error, start, bytes: 0, lost });
        }
    }

    fn enter_next(&mut self) {
        let number = self.next_block;
        self.next_block += 1;
        self.next_entry = 0;
        self.block = match self.table.block(number) {
            Ok(block) => {
                self.blocks_read += 1;
                self.key.clear();
                self.key.extend_from_slice(block.prefix());
                Some(block)
            }
            Err(error) => {
                let extent = self.table.extent(number);
                let lost = self.table.keys_of(number);
                let bytes = extent.end - extent.start;
                self.damage.push(TableDamage { error, start: extent.start, bytes, lost });
                None
            }
        };
    }

    /// Returns the current entry.
    ///
    /// # Panics
    /// If there is none.
    pub(crate) fn entry(&self) -> EntryRef<'_> {
        let block = self.block.as_ref().expect("the scan stands on an entry");
        let entry = self.next_entry.checked_sub(1).expect("the scan stands on an entry");
        EntryRef { key: &self.key, seq: block.seq(entry), kind: block.kind(entry), value: block.value(entry) }
    }

    /// Path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.table.path
    }

    /// Returns whether the parts are valid but belong to another table. Checksums do not detect this if that
    /// table has the same file name, and so the same salt.
    pub(crate) fn holds_other_parts(&self) -> bool {
        let stated = self.table.properties.as_ref().map(|properties| properties.fingerprint);
        let is_sound = self.table.damage.is_empty() && self.damage.is_empty();
        is_sound && stated.is_some_and(|stated| self.table.fingerprint().is_some_and(|found| found != stated))
    }

    /// Number of the block that holds the current entry.
    pub(crate) fn block_number(&self) -> usize {
        self.next_block - 1
    }
}
