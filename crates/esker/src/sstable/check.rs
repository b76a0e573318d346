//! Verifies a table: reads everything, bypassing the cache, and compares all redundant information.
//!
//! ```text
//!   all blocks --> order, heads, separators, filter, counts, range  <--> index, filter, properties
//! ```

use std::sync::Arc;

use super::block::Block;
use super::footer::Footer;
use super::index::Index;
use super::root::StoredIndex;
use super::scan::TableScan;
use super::stored::{Fingerprint, TRAILER_BYTES};
use super::{Counts, Table};
use crate::encoding::bloom::BlockedBloom;
use crate::encoding::hash::key_hash;
use crate::types::entry::EntryRef;
use crate::types::key_range::End;
use crate::types::{Error, Result, SeqNo};

/// Result of a verification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TableCheck {
    /// Number of data blocks read and verified.
    pub blocks: u64,
    /// Number of versions.
    pub entries: u64,
    /// Number of distinct keys.
    pub keys: u64,
}

/// State of a verification.
struct Tally {
    filter: Option<BlockedBloom>,
    counts: Counts,
    features: u32,
    blocks: u64,
    /// The previous entry. `None` at the start and after a block that could not be read.
    last: Option<(Vec<u8>, SeqNo)>,
    /// Fingerprint of the blocks so far.
    fingerprint: Fingerprint,
}

impl Table {
    /// Reads the whole table, bypassing the cache, and checks order, counts, separators, filter and range.
    ///
    /// # Errors
    /// The first error found by [`verify_all`](Self::verify_all).
    pub(crate) fn verify(self: &Arc<Self>) -> Result<TableCheck> {
        let mut first = None;
        let check = self.verify_all(&mut |error| {
            first.get_or_insert(error);
        });
        first.map_or(Ok(check), Err)
    }

    /// Like `verify`, but reports all errors to `each`. Continues after a damaged block.
    pub(crate) fn verify_all(self: &Arc<Self>, each: &mut dyn FnMut(Error)) -> TableCheck {
        let (index, filter) = match self.read_index().and_then(|index| Ok((index, self.read_filter()?))) {
            Ok(found) => found,
            Err(error) => {
                each(error);
                return TableCheck::default();
            }
        };
        let mut scan = TableScan::new(self.clone(), false);
        let mut tally = Tally {
            filter,
            counts: Counts::begun(),
            features: 0,
            blocks: 0,
            last: None,
            fingerprint: Fingerprint::default(),
        };
        let mut whole = true;
        for page in 0..index.pages() {
            let page = self.read_index_page(&index, page);
            let checked = page.map(|page| self.check_page(&mut tally, &page, &mut scan, each));
            whole &= checked.unwrap_or_else(|error| {
                tally.last = None;
                each(error);
                false
            });
        }
        if whole {
            let checks = [self.check_counts(&tally), self.check_fingerprint(&index, tally.fingerprint)];
            checks.into_iter().filter_map(Result::err).for_each(each);
        }
        let Counts { entries, keys, .. } = tally.counts;
        TableCheck { blocks: tally.blocks, entries, keys }
    }

    /// Checks the blocks of a page of the index. Returns whether all are valid.
    fn check_page(
        &self,
        tally: &mut Tally,
        index: &Index,
        scan: &mut TableScan,
        each: &mut dyn FnMut(Error),
    ) -> bool {
        let mut whole = true;
        for number in index.range() {
            let start = index.extent(number).start;
            let read = scan.read_stored(number).and_then(|stored| {
                tally.fingerprint = tally.fingerprint.with_part(stored);
                self.decode_block(stored, start)
            });
            let checked = match read {
                Ok(block) => self.check_block(tally, (index, number), &block),
                Err(error) => {
                    tally.last = None;
                    Err(error)
                }
            };
            if let Err(error) = checked {
                whole = false;
                each(error);
            }
        }
        whole
    }

    fn check_block(&self, tally: &mut Tally, place: (&Index, usize), block: &Block) -> Result<()> {
        let (index, number) = place;
        tally.blocks += 1;
        let mut key = block.prefix().to_vec();
        for i in 0..block.count() {
            key.truncate(block.prefix().len());
            block.push_suffix(i, &mut key);
            if !block.head_fits(i) {
                return Err(self.unsound(index, number, "a head does not match its key"));
            }
            let seq = self.seq_of(block, i);
            let entry = EntryRef { key: &key, seq, kind: block.kind(i), value: block.value(i) };
            self.check_entry(tally, place, i == 0, &entry)?;
        }
        // The order inside the block was checked above.
        self.check_place(index, number, block, None)
    }

    /// Verifies that the first and last keys of a block fit its position. `before` is the preceding block, if
    /// known.
    pub(super) fn check_place(
        &self,
        index: &Index,
        number: usize,
        block: &Block,
        before: Option<&Block>,
    ) -> Result<()> {
        let range = &self.properties().range;
        let (first, last) = (block.key(0), block.key(block.count() - 1));
        if below_separator(index, number, &first) != index.continues(number) {
            return Err(self.unsound(index, number, "the first key does not fit the separator"));
        }
        if index.separator(number + 1).is_some() && !below_separator(index, number + 1, &last) {
            return Err(self.unsound(index, number, "a key is not below the next separator"));
        }
        if !range.contains(&first) || !range.contains(&last) {
            return Err(self.unsound(index, number, "a key lies outside the table's range"));
        }
        match before {
            Some(before) if index.continues(number) && block.seq(0) >= before.seq(before.count() - 1) => {
                Err(self.unsound(index, number, "entries are out of order"))
            }
            _ => Ok(()),
        }
    }

    fn check_entry(
        &self,
        tally: &mut Tally,
        (index, number): (&Index, usize),
        first_of_block: bool,
        entry: &EntryRef<'_>,
    ) -> Result<()> {
        let last = tally.last.take();
        let same_key = last.as_ref().is_some_and(|(key, _)| key == entry.key);
        let in_order = last
            .as_ref()
            .is_none_or(|(key, seq)| entry.key > key.as_slice() || (same_key && entry.seq < *seq));
        let known = last.is_some() || number == 0;
        let (mut last_key, _) = last.unwrap_or_default();
        last_key.clear();
        last_key.extend_from_slice(entry.key);
        tally.last = Some((last_key, entry.seq));
        if !in_order {
            return Err(self.unsound(index, number, "entries are out of order"));
        }
        if first_of_block && known && index.continues(number) != same_key {
            return Err(self.unsound(index, number, "the index is wrong about the first block of a key"));
        }
        if first_of_block && index.find(entry.key) > number {
            return Err(self.unsound(index, number, "the separator is above the first key"));
        }
        if !same_key {
            if tally.filter.as_ref().is_some_and(|filter| !filter.may_contain(key_hash(entry.key))) {
                return Err(self.unsound(index, number, "the filter misses a key"));
            }
            if !self.properties().range.contains(entry.key) {
                return Err(self.unsound(index, number, "a key lies outside the table's range"));
            }
        }
        tally.counts.add(entry, !same_key);
        tally.features |= entry.kind.features();
        Ok(())
    }

    fn check_counts(&self, tally: &Tally) -> Result<()> {
        let properties = self.properties();
        let mut counts = tally.counts;
        for fragment in self.range_tombstones().fragments() {
            counts.add_seqs(fragment.seqs.oldest(), fragment.seqs.newest());
            let range = &properties.range;
            let inside = match &range.end {
                End::Excluded(end) => *fragment.end <= **end,
                // The first key after an included end is that key followed by a zero byte.
                End::Included(end) => {
                    fragment.end.strip_suffix(&[0]).map_or(&*fragment.end, |cut| cut) <= &**end
                }
            };
            if *fragment.start < *range.start || !inside {
                return Err(self.unsound_as_a_whole("a range tombstone lies outside the table's range"));
            }
        }
        let counted =
            (counts.ended(self.range_tombstones().fragments().len() as u64), tally.features, tally.blocks);
        let stated = (self.meta().counts, properties.features, properties.blocks);
        if counted != stated {
            let detail = format!("counted {counted:?}, but the properties say {stated:?}");
            return Err(self.unsound_as_a_whole(&detail));
        }
        Ok(())
    }

    /// Verifies the fingerprint, given that of all blocks.
    fn check_fingerprint(&self, index_parts: &StoredIndex, mut fingerprint: Fingerprint) -> Result<()> {
        let stated = self.properties().fingerprint;
        let Footer { tombstones, filter, index, .. } = self.read_footer()?;
        let pages = index_parts.page_extents();
        for part in [tombstones, filter].into_iter().chain(pages).chain([index]) {
            if !part.is_empty() {
                let trailer = part.end.saturating_sub(TRAILER_BYTES as u64)..part.end;
                fingerprint = fingerprint.with_part(&self.read_extent(trailer)?);
            }
        }
        if fingerprint == stated {
            return Ok(());
        }
        let detail =
            format!("the parts add up to fingerprint {fingerprint:?}, but the properties say {stated:?}");
        Err(self.unsound_as_a_whole(&detail))
    }

    fn unsound(&self, index: &Index, block: usize, detail: &str) -> Error {
        Error::corrupt("block", self.path(), index.extent(block).start, detail)
    }

    fn unsound_as_a_whole(&self, detail: &str) -> Error {
        Error::corrupt("properties", self.path(), self.blocks_end(), detail)
    }
}

/// Returns whether `key` may precede block `number`: it is below the separator, or equal to the key that the
/// block continues.
fn below_separator(index: &Index, number: usize, key: &[u8]) -> bool {
    let [prefix, suffix] = index.separator(number).unwrap_or_default();
    let order = key.get(..prefix.len()).map_or(key, |start| start).cmp(prefix);
    let order = order.then_with(|| key[prefix.len().min(key.len())..].cmp(suffix));
    if index.continues(number) { order.is_eq() } else { order.is_lt() }
}
