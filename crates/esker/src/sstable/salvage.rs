//! A damaged table, as far as it can be read.
//!
//! ```text
//!   file --footer, index sound--> extents of blocks --.
//!        --otherwise, search.rs-> extents found ------+--> SalvageScan --> entries in order
//!                                                     `--> TableDamage: what, where, which keys
//! ```
//!
//! sstable_salvage.1. Nothing is believed without its checksum; no bytes make this panic or allocate more than the file is long.
//! sstable_salvage.2. Entries come in the order of a table: key ascending, then sequence number descending. One that is not in order
//!      is reported and left out.
//! sstable_salvage.3. Whatever is not read is reported: every part and every block that is not sound, and bytes between parts.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_env::{Env, File, OpenOptions, read_range};

use super::block::Block;
use super::footer::{FOOTER_BYTES, Footer};
use super::index::Index;
use super::properties::{Properties, decode_tombstones};
use super::search;
use super::stored::{self, Fingerprint, Salt, TRAILER_BYTES};
use super::table::{parse_block, read_footer};
use crate::encoding::bloom::BlockedBloom;
use crate::encoding::bytes::Decoded;
use crate::types::entry::EntryRef;
use crate::types::range_tombstone::RangeTombstones;
use crate::types::{Error, Result, SeqNo};

/// Something of a table that cannot be read.
#[derive(Debug)]
pub(crate) struct TableDamage {
    /// What is wrong, with file and offset.
    pub error: Error,
    /// Where the damaged part or block begins; the error names the place in it.
    pub start: u64,
    /// Bytes from there on that are lost; 0 if nothing of the content is.
    pub bytes: u64,
    /// What of the content is lost.
    pub lost: LostContent,
}

/// What damage takes with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LostContent {
    /// Nothing: what is damaged serves only to find the rest.
    Nothing,
    /// Versions of keys from the first to the second, both included; none: as far as the table goes.
    Keys(Option<Vec<u8>>, Option<Vec<u8>>),
    /// The range tombstones: keys removed by range may be back.
    RangeTombstones,
}

/// Where a table's blocks lie.
enum Layout {
    Indexed(Index),
    Found(Vec<Range<u64>>),
}

/// A table whose parts are read as far as they are sound.
pub(crate) struct SalvageTable {
    path: PathBuf,
    file: Arc<dyn File>,
    file_bytes: u64,
    layout: Layout,
    /// Its footer, if it is sound.
    footer: Option<Footer>,
    /// Of the footer; if that is lost, that of the file's name, unless it was renamed.
    salt: Salt,
    /// Its counts and limits, if they can be read.
    pub(crate) properties: Option<Properties>,
    /// Its range tombstones, those that can be read.
    pub(crate) tombstones: RangeTombstones,
    /// What of it cannot be read, blocks apart.
    pub(crate) damage: Vec<TableDamage>,
    /// Entries of the blocks, if those had to be searched for.
    pub(crate) found_entries: Option<u64>,
}

impl SalvageTable {
    /// Reads everything but the blocks. Fails only if the file cannot be opened, or is of a newer format.
    pub(crate) fn open(env: &Env, path: &Path) -> Result<SalvageTable> {
        let file = env.fs.open(path, OpenOptions::read()).map_err(|e| Error::io("open", path, e))?;
        let file_bytes = file.len().map_err(|e| Error::io("measure", path, e))?;
        let mut table = SalvageTable {
            path: path.to_owned(),
            file,
            file_bytes,
            layout: Layout::Found(Vec::new()),
            footer: None,
            salt: Salt::of_file(path),
            properties: None,
            tombstones: RangeTombstones::default(),
            damage: Vec::new(),
            found_entries: None,
        };
        match read_footer(&*table.file, path, file_bytes) {
            Ok(footer) => {
                table.salt = footer.salt;
                table.read_parts(&footer);
                table.footer = Some(footer);
            }
            Err(error @ Error::UnsupportedVersion { .. }) => return Err(error),
            Err(error) => {
                let bytes = FOOTER_BYTES as u64;
                let start = file_bytes.saturating_sub(bytes);
                table.damage.push(TableDamage { error, start, bytes, lost: LostContent::Nothing });
            }
        }
        if !matches!(table.layout, Layout::Indexed(_)) {
            table.search_parts();
        }
        Ok(table)
    }

    fn note(&mut self, error: Error, bytes: u64, lost: LostContent) {
        let start = error_offset(&error);
        self.damage.push(TableDamage { error, start, bytes, lost });
    }

    fn read_parts(&mut self, footer: &Footer) {
        if let Some(properties) =
            self.read_part("properties", &footer.properties, LostContent::Nothing, Properties::decode)
        {
            self.properties = Some(properties);
        }
        if !footer.filter.is_empty() {
            self.read_part("filter", &footer.filter, LostContent::Nothing, BlockedBloom::decode);
        }
        if !footer.tombstones.is_empty()
            && let Some(tombstones) = self.read_part(
                "range tombstones",
                &footer.tombstones,
                LostContent::RangeTombstones,
                decode_tombstones,
            )
        {
            self.tombstones = tombstones;
        }
        let index = self.read_part("index", &footer.index, LostContent::Nothing, Index::decode);
        if let Some(index) = index {
            if index.blocks_end() == footer.tombstones.start {
                self.layout = Layout::Indexed(index);
            } else {
                let detail = format!("its blocks end at {}", index.blocks_end());
                let error = Error::corrupt("index", &self.path, footer.index.start, detail);
                self.note(error, 0, LostContent::Nothing);
            }
        }
    }

    fn read_part<T>(
        &mut self,
        what: &'static str,
        extent: &Range<u64>,
        lost: LostContent,
        decode: impl FnOnce(&[u8]) -> Decoded<T>,
    ) -> Option<T> {
        let read = self.read(extent.clone()).and_then(|stored| {
            let decoded = stored::open(&stored, self.salt, extent.start).and_then(|payload| decode(&payload));
            decoded.map_err(|e| e.in_file(what, &self.path, extent.start))
        });
        let damage = |error| {
            let bytes = extent.end - extent.start;
            self.damage.push(TableDamage { error, start: extent.start, bytes, lost });
        };
        read.map_err(damage).ok()
    }

    /// The footer or the index is lost: looks for stored parts from the start of the file.
    fn search_parts(&mut self) {
        let end = self.footer.as_ref().map_or(self.file_bytes, |footer| footer.tombstones.start);
        let found = search::parts(&*self.file, self.file_bytes, end, self.salt);
        // A sound footer knows where the blocks end.
        let fills = self.footer.is_some() && found.gaps.is_empty() && found.blocks_end == end;
        if self.footer.is_none() {
            self.properties = found.properties;
            self.tombstones = found.tombstones;
            if !found.complete {
                let detail = "range tombstones may have been here, and may be lost";
                let error = Error::corrupt("table", &self.path, found.blocks_end, detail);
                self.note(error, 0, LostContent::RangeTombstones);
            }
        }
        for gap in found.gaps {
            let detail = "no part of a table is recognised here";
            let error = Error::corrupt("table", &self.path, gap.start, detail);
            let before = found.blocks.iter().rev().find(|block| block.end <= gap.start);
            let after = found.blocks.iter().find(|block| block.start >= gap.end);
            let low = before.and_then(|extent| self.edge_keys(extent).map(|keys| keys.1));
            let high = after.and_then(|extent| self.edge_keys(extent).map(|keys| keys.0));
            self.note(error, gap.end - gap.start, LostContent::Keys(low, high));
        }
        if !found.complete && !fills {
            let last = found.blocks.last().and_then(|extent| self.edge_keys(extent));
            let detail = "more blocks may have been here, and may be lost";
            let error = Error::corrupt("table", &self.path, found.blocks_end, detail);
            self.note(error, 0, LostContent::Keys(last.map(|keys| keys.1), None));
        }
        let entries = found.blocks.iter().filter_map(|extent| self.block_at(extent.clone()).ok());
        self.found_entries = Some(entries.map(|block| block.count() as u64).sum());
        self.layout = Layout::Found(found.blocks);
    }

    /// The first and the last key of a block.
    fn edge_keys(&self, extent: &Range<u64>) -> Option<(Vec<u8>, Vec<u8>)> {
        let block = self.block_at(extent.clone()).ok()?;
        Some((block.key(0), block.key(block.count() - 1)))
    }

    /// The newest commit that went into it, if its footer says so.
    pub(crate) fn newest_commit(&self) -> Option<SeqNo> {
        self.footer.as_ref().map(|footer| footer.newest_commit)
    }

    /// The parts behind the blocks, by name, if the footer is sound.
    pub(crate) fn parts(&self) -> Vec<(&'static str, Range<u64>)> {
        let Some(footer) = &self.footer else { return Vec::new() };
        let Footer { tombstones, filter, index, properties, .. } = footer.clone();
        let end = properties.end;
        vec![
            ("range tombstones", tombstones),
            ("filter", filter),
            ("index", index),
            ("properties", properties),
            ("footer", end..end + FOOTER_BYTES as u64),
        ]
    }

    /// What its parts add up to, damaged ones included; none if it is not known where they end.
    pub(crate) fn fingerprint(&self) -> Option<Fingerprint> {
        let (Layout::Indexed(index), Some(footer)) = (&self.layout, &self.footer) else { return None };
        let blocks = (0..index.len()).map(|block| index.extent(block));
        let others = [&footer.tombstones, &footer.filter, &footer.index].into_iter().cloned();
        let mut fingerprint = Fingerprint::default();
        for part in blocks.chain(others.filter(|part| !part.is_empty())) {
            let trailer = part.end.checked_sub(TRAILER_BYTES as u64)?..part.end;
            fingerprint = fingerprint.with_part(&self.read(trailer).ok()?);
        }
        Some(fingerprint)
    }

    /// The number of blocks that are known of.
    pub(crate) fn blocks(&self) -> usize {
        match &self.layout {
            Layout::Indexed(index) => index.len(),
            Layout::Found(blocks) => blocks.len(),
        }
    }

    /// Where a block lies.
    pub(crate) fn extent(&self, number: usize) -> Range<u64> {
        match &self.layout {
            Layout::Indexed(index) => index.extent(number),
            Layout::Found(blocks) => blocks[number].clone(),
        }
    }

    /// What the index says about a block: its separator, and whether its first key is the last one before it.
    pub(crate) fn separator(&self, number: usize) -> Option<(Vec<u8>, bool)> {
        let Layout::Indexed(index) = &self.layout else { return None };
        let (prefix, suffix) = index.separator(number);
        Some(([prefix, suffix].concat(), index.continues(number)))
    }

    /// The first key that may be in the table, as far as is known.
    pub(crate) fn lower_bound(&self) -> Vec<u8> {
        match (&self.properties, &self.layout) {
            (Some(properties), _) => properties.range.start.clone(),
            (None, Layout::Found(blocks)) if !blocks.is_empty() => {
                self.edge_keys(&blocks[0]).map_or_else(Vec::new, |keys| keys.0)
            }
            _ => Vec::new(),
        }
    }

    /// Reads a block.
    pub(super) fn block(&self, number: usize) -> Result<Block> {
        self.block_at(self.extent(number))
    }

    fn block_at(&self, extent: Range<u64>) -> Result<Block> {
        let start = extent.start;
        let stored = self.read(extent)?;
        let block = parse_block(stored::open(&stored, self.salt, start), stored::is_packed(&stored));
        block.map_err(|e| e.in_file("block", &self.path, start))
    }

    fn read(&self, extent: Range<u64>) -> Result<Vec<u8>> {
        // sstable_salvage.1: an extent may come from bytes that only look like a table.
        let len = extent.end.checked_sub(extent.start).filter(|_| extent.end <= self.file_bytes);
        let Some(len) = len.and_then(|len| usize::try_from(len).ok()) else {
            return Err(Error::corrupt("table", &self.path, extent.start, "a part beyond the file's end"));
        };
        let read = read_range(&*self.file, extent.start, len);
        read.map_err(|e| Error::read(&self.path, extent.start, len, &e))
    }

    /// The keys that a block may hold.
    fn keys_of(&self, number: usize) -> LostContent {
        let end = self.properties.as_ref().map(|properties| properties.range.end.key().to_vec());
        match &self.layout {
            Layout::Indexed(index) => {
                let low = match number {
                    0 => self.properties.as_ref().map(|properties| properties.range.start.clone()),
                    _ => self.separator(number).map(|(key, _)| key),
                };
                let high = (number + 1 < index.len()).then(|| self.separator(number + 1));
                LostContent::Keys(low, high.flatten().map(|(key, _)| key).or(end))
            }
            // What was found has been verified: it can only have changed since.
            Layout::Found(_) => LostContent::Keys(None, end),
        }
    }

    /// All entries in order, damage passed over.
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

fn error_offset(error: &Error) -> u64 {
    if let Error::Corrupt { offset, .. } = error { *offset } else { 0 }
}

/// A walk over all entries that can be read.
pub(crate) struct SalvageScan {
    table: SalvageTable,
    next_block: usize,
    block: Option<Block>,
    next_entry: usize,
    key: Vec<u8>,
    /// The entry before, for sstable_salvage.2.
    last: Option<(Vec<u8>, SeqNo)>,
    /// Blocks that were sound.
    pub(crate) blocks_read: u64,
    /// Damage met so far, that of [`SalvageTable::damage`] not included.
    pub(crate) damage: Vec<TableDamage>,
}

impl SalvageScan {
    /// Moves to the next entry; false after the last.
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

    /// The entry that `advance` moved to.
    ///
    /// # Panics
    /// If there is none.
    pub(crate) fn entry(&self) -> EntryRef<'_> {
        let block = self.block.as_ref().expect("the scan stands on an entry");
        let entry = self.next_entry.checked_sub(1).expect("the scan stands on an entry");
        EntryRef { key: &self.key, seq: block.seq(entry), kind: block.kind(entry), value: block.value(entry) }
    }

    /// The file.
    pub(crate) fn path(&self) -> &Path {
        &self.table.path
    }

    /// Whether all parts are sound, and yet not those that the table was made of. Those of another database's table of the same name have
    /// the same salt.
    pub(crate) fn holds_other_parts(&self) -> bool {
        let stated = self.table.properties.as_ref().map(|properties| properties.fingerprint);
        let is_sound = self.table.damage.is_empty() && self.damage.is_empty();
        is_sound && stated.is_some_and(|stated| self.table.fingerprint().is_some_and(|found| found != stated))
    }

    /// The number of the block that the entry is in.
    pub(crate) fn block_number(&self) -> usize {
        self.next_block - 1
    }
}
