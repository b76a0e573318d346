//! Fuzzing entry points: every decoder of bytes from disk, and whole tables, on arbitrary input. None may
//! panic.
//!
//! ```text
//!   TableWriter --tables()--> valid files --parts()--> valid blocks, indexes, ...: seeds for fuzzers
//! ```

use std::cmp::Reverse;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use esker_env::{Env, MemFs, OpenOptions, PageBuf, read_range};

use super::block::Block;
use super::block_search::Simd;
use super::footer::{FOOTER_BYTES, Footer};
use super::index::{Index, PagePosition};
use super::properties::{Properties, decode_tombstones};
use super::root::{Root, StoredIndex};
use super::stored::{Fingerprint, PartOpener, Salt, TRAILER_BYTES};
use super::{BlockCache, SalvageTable, Table, TableCompression, TableOptions, TableWriter};
use crate::cache::{self, MemoryBudget};
use crate::encoding::bloom::BlockedBloom;
use crate::encoding::checksum::{crc32c, crc32c_append};
use crate::encoding::hash::key_hash;
use crate::types::SeqNo;
use crate::types::cursor::SourceCursor;
use crate::types::entry::EntryRef;
use crate::types::op::Kind;
use crate::types::range_tombstone::RangeTombstone;

/// Parses a data block. If it is accepted, everything in it must be readable and searchable.
pub fn block(bytes: &[u8]) {
    let Ok(block) = Block::parse(PageBuf::copy_of(bytes)) else { return };
    let mut key = Vec::new();
    for i in 0..block.count() {
        key.clear();
        key.extend_from_slice(block.prefix());
        block.push_suffix(i, &mut key);
        let _ = (block.seq(i), block.kind(i), block.value(i), block.head_fits(i));
        let _ = i + 1 < block.count() && block.same_key_as_next(i);
        let (place, found) = block.lower_bound(&key, Simd::detect());
        assert!(place <= block.count() && (!found || place < block.count()));
    }
}

/// Decodes the stored form of a block or part.
pub fn stored_part(bytes: &[u8]) {
    let _ = PartOpener::default().open(bytes, 0);
}

/// Decodes an index, and the root of one. If it is accepted, it must be searchable.
pub fn index(bytes: &[u8]) {
    if let Ok(index) = Index::decode(bytes, PagePosition::default()) {
        for block in index.range() {
            let separator = index.separator(block).expect("each block has one").concat();
            let found = index.find(&separator);
            assert!(index.range().contains(&found) && index.extent(found).end <= index.blocks_end());
        }
        index.find(bytes);
    }
    let Ok(root) = Root::decode(bytes, 0) else { return };
    for page in root.pages() {
        let found = root.find(&root.bounds(page).0.unwrap_or_default());
        assert!(found <= page && root.extent(found).end <= root.pages_end());
        assert!(root.blocks_extent(page).end <= root.blocks_end());
        let _ = root.decode_page(page, bytes);
    }
    assert!((0..root.blocks().min(100)).all(|block| root.pages().contains(&root.page_of(block))));
}

/// Decodes a footer.
pub fn footer(bytes: &[u8]) {
    if let Some(bytes) = bytes.first_chunk::<FOOTER_BYTES>() {
        // The file size that the footer would match, if it is valid.
        let number = |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().expect("inside the footer"));
        let sum = |places: &[usize]| {
            places.iter().fold(FOOTER_BYTES as u64, |sum, at| sum.wrapping_add(number(*at)))
        };
        for file_len in [FOOTER_BYTES as u64, sum(&[0, 8, 16, 24, 32, 56])] {
            if let Ok(footer) = Footer::decode(bytes, file_len) {
                assert_eq!(footer.encode(), *bytes);
            }
        }
    }
}

/// Decodes properties, range tombstones and filters.
pub fn other_parts(bytes: &[u8]) {
    let _ = Properties::decode(bytes);
    let _ = decode_tombstones(bytes);
    if let Ok(filter) = BlockedBloom::decode(bytes) {
        filter.may_contain(bytes.len() as u64);
    }
}

/// Reads a whole table, unchanged and with valid checksums. If it opens, all reads must work.
pub fn table(bytes: &[u8]) {
    read_table(bytes);
    let mut bytes = bytes.to_vec();
    if repair(&mut bytes).is_some() {
        read_table(&bytes);
    }
}

/// Reads a damaged table like repair, dump and the offline check, unchanged and with valid checksums.
pub fn salvage_table(bytes: &[u8]) {
    salvage(bytes);
    let mut bytes = bytes.to_vec();
    if repair(&mut bytes).is_some() {
        salvage(&bytes);
    }
}

fn salvage(bytes: &[u8]) {
    let env = memory_with(bytes);
    let Ok(table) = SalvageTable::open(&env, Path::new(PATH)) else { return };
    let _ = (table.parts(), table.lower_bound());
    let mut end = 0;
    for number in 0..table.blocks() {
        let extent = table.extent(number);
        assert!(extent.start >= end && extent.start <= extent.end, "blocks lie one behind the other");
        end = extent.end;
        let _ = table.separator(number);
    }
    let mut damage = table.damage.len();
    let sound = Table::open(&env, Path::new(PATH), &BlockCache::new(MemoryBudget::new(1 << 20)));
    let mut expected = sound.ok().filter(|table| table.verify().is_ok()).map(|table| table.scan());
    let (mut scan, mut last) = (table.scan(), None);
    while scan.advance() {
        let entry = scan.entry();
        let place = (entry.key.to_vec(), Reverse(entry.seq));
        assert!(last.as_ref().is_none_or(|last| *last < place));
        last = Some(place);
        if let Some(expected) = &mut expected {
            assert_eq!(expected.next().ok().flatten(), Some(entry), "a sound table is salvaged as it is");
        }
    }
    damage += scan.damage.len();
    if let Some(mut expected) = expected {
        assert!(damage == 0 && matches!(expected.next(), Ok(None)), "a sound table is salvaged as a whole");
    }
}

const PATH: &str = "000001.sst";

/// Returns an environment that holds the bytes as a table.
fn memory_with(bytes: &[u8]) -> Env {
    let env = memory();
    let file = env.fs.open(Path::new(PATH), OpenOptions::create_new()).expect("memory does not fail");
    file.write_all_at(bytes, 0).expect("memory does not fail");
    env
}

fn read_table(bytes: &[u8]) {
    let env = memory_with(bytes);
    let cache = BlockCache::new(MemoryBudget::new(1 << 20));
    let Ok(table) = Table::open(&env, Path::new(PATH), &cache) else { return };
    let _ = table.verify();
    let mut keys = vec![Vec::new(), b"k".to_vec(), vec![0xFF; 20]];
    let mut scan = table.scan();
    while let Ok(Some(entry)) = scan.next() {
        keys.push(entry.key.to_vec());
    }
    let pin = cache::pin();
    let mut cursor = table.cursor(SeqNo::new(5), true);
    for key in keys.iter().take(100) {
        let _ = table.get(key, key_hash(key), SeqNo::MAX, true, &pin);
        let _ = table.get(key, key_hash(key), SeqNo::ZERO, false, &pin);
        walk(&mut cursor, SourceCursor::next, |cursor| cursor.seek(key));
        walk(&mut cursor, SourceCursor::prev, |cursor| cursor.seek_before(key));
    }
}

/// Takes a few steps from the position that `start` leads to.
fn walk<C: SourceCursor>(
    cursor: &mut C,
    step: impl Fn(&mut C) -> crate::Result<()>,
    start: impl Fn(&mut C) -> crate::Result<()>,
) {
    let mut outcome = start(cursor);
    for _ in 0..5 {
        if outcome.is_err() || !cursor.valid() {
            return;
        }
        let _ = (cursor.key(), cursor.seq(), cursor.kind(), cursor.stored());
        outcome = step(cursor);
    }
}

/// Writes valid checksums for the footer, the parts it names and the blocks in the index, so that mutations
/// reach the code after the checks. `None` if the file is too damaged for that.
fn repair(bytes: &mut [u8]) -> Option<()> {
    let file_len = bytes.len() as u64;
    let footer = bytes.last_chunk_mut::<FOOTER_BYTES>()?;
    let crc = crc32c(&footer[..68]);
    footer[68..72].copy_from_slice(&crc.to_le_bytes());
    let footer = Footer::decode(footer, file_len).ok()?;
    for part in [&footer.tombstones, &footer.filter, &footer.index, &footer.properties] {
        reseal(bytes, part, footer.salt);
    }
    let index = index_of(bytes, &footer)?;
    let mut parts = Vec::new();
    for page in index.page_extents() {
        reseal(bytes, &page, footer.salt);
    }
    for page in pages_of(bytes, &index, footer.salt) {
        parts.extend(page.range().map(|block| page.extent(block)));
    }
    parts.iter().for_each(|block| reseal(bytes, block, footer.salt));
    parts.extend([footer.tombstones.clone(), footer.filter.clone()]);
    parts.extend(index.page_extents().chain([footer.index.clone()]));
    let mut fingerprint = Fingerprint::default();
    for part in parts.iter().filter(|part| !part.is_empty()) {
        fingerprint = fingerprint.with_part(bytes.get(part.start as usize..part.end as usize)?);
    }
    let properties = part_of(bytes, &footer.properties, footer.salt)?;
    if Properties::decode(&properties).is_ok() {
        let end = footer.properties.end as usize - TRAILER_BYTES;
        bytes[end - 4..end].copy_from_slice(&fingerprint.get().to_le_bytes());
        reseal(bytes, &footer.properties, footer.salt);
    }
    Some(())
}

/// Decodes the index of a table, or its root.
fn index_of(bytes: &[u8], footer: &Footer) -> Option<StoredIndex> {
    let part = part_of(bytes, &footer.index, footer.salt)?;
    Some(match footer.pages.is_empty() {
        true => StoredIndex::Blocks(Arc::new(Index::decode(&part, PagePosition::default()).ok()?)),
        false => StoredIndex::Paged(Box::new(Root::decode(&part, footer.pages.start).ok()?)),
    })
}

/// Returns the pages that can be decoded.
fn pages_of(bytes: &[u8], index: &StoredIndex, salt: Salt) -> Vec<Arc<Index>> {
    let root = match index {
        StoredIndex::Blocks(index) => return vec![index.clone()],
        StoredIndex::Paged(root) => root,
    };
    let page = |page| root.decode_page(page, &part_of(bytes, &root.extent(page), salt)?).ok();
    root.pages().filter_map(page).map(Arc::new).collect()
}

/// Writes a valid checksum at the end of a stored part, if the part lies inside the file.
fn reseal(bytes: &mut [u8], part: &Range<u64>, salt: Salt) {
    let Some(stored) = bytes.get_mut(part.start as usize..part.end as usize) else { return };
    if let Some((covered, crc)) = stored.split_last_chunk_mut::<4>() {
        *crc = crc32c_append(salt.at(part.start), covered).to_le_bytes();
    }
}

fn part_of(bytes: &[u8], part: &Range<u64>, salt: Salt) -> Option<Vec<u8>> {
    let stored = bytes.get(part.start as usize..part.end as usize)?;
    let opener = PartOpener { salt, ..PartOpener::default() };
    Some(opener.open(stored, part.start).ok()?.to_vec())
}

fn memory() -> Env {
    Env::simulated(Arc::new(MemFs::new()), 1)
}

/// The parts of valid tables, by decoder.
#[derive(Default)]
pub struct Parts {
    /// For [`block`].
    pub blocks: Vec<Vec<u8>>,
    /// For [`index`].
    pub indexes: Vec<Vec<u8>>,
    /// For [`footer`].
    pub footers: Vec<Vec<u8>>,
    /// For [`other_parts`].
    pub others: Vec<Vec<u8>>,
    /// For [`stored_part`].
    pub stored: Vec<Vec<u8>>,
}

/// Splits valid tables into parts.
pub fn parts(tables: &[Vec<u8>]) -> Parts {
    let mut parts = Parts::default();
    for table in tables {
        let at = table.len() - FOOTER_BYTES;
        parts.footers.push(table[at..].to_vec());
        let footer = table.last_chunk().expect("a table has a footer");
        let Ok(footer) = Footer::decode(footer, table.len() as u64) else { panic!("a valid table") };
        let open = |part: &Range<u64>| part_of(table, part, footer.salt).expect("a valid part");
        let index = index_of(table, &footer).expect("a valid index");
        parts.indexes.push(open(&footer.index));
        parts.indexes.extend(index.page_extents().map(|page| open(&page)));
        for part in [&footer.tombstones, &footer.filter, &footer.properties] {
            if (part.end - part.start) as usize > TRAILER_BYTES {
                parts.others.push(open(part));
            }
        }
        let pages = pages_of(table, &index, footer.salt);
        for extent in pages.iter().flat_map(|page| page.range().map(|block| page.extent(block))) {
            parts.blocks.push(open(&extent));
            let mut stored = table[extent.start as usize..extent.end as usize].to_vec();
            let whole = 0..stored.len() as u64;
            reseal(&mut stored, &whole, Salt::default());
            parts.stored.push(stored);
        }
    }
    parts
}

/// Returns valid tables: plain, with versions and tombstones, and with large values.
pub fn tables() -> Vec<Vec<u8>> {
    let small =
        TableOptions { block_bytes: 256, compression: TableCompression::None, ..TableOptions::default() };
    let packed = TableOptions { compression: TableCompression::Lz4, ..small.clone() };
    let unfiltered = TableOptions { filter_bits_per_key: 0, split_values_over: 16, ..small.clone() };
    let paged = TableOptions { page_blocks: 2, ..small.clone() };
    let long_keys = TableOptions { block_bytes: 1 << 12, ..packed.clone() };
    vec![
        table_of(small.clone(), 40, &[0], 8, false),
        table_of(paged, 30, &[9, 7, 3], 30, true),
        table_of(small, 10, &[9, 7, 3], 5, true),
        table_of(packed, 30, &[4, 1], 60, true),
        table_of(unfiltered, 12, &[2, 0], 90, false),
        table_of(long_keys, 3, &[0], 900, false),
    ]
}

/// Returns a table of `keys` keys, each with versions of the sequence numbers `seqs`. Every fifth version is
/// a tombstone.
fn table_of(options: TableOptions, keys: u32, seqs: &[u64], value_bytes: usize, ranges: bool) -> Vec<u8> {
    let env = memory();
    let mut writer = TableWriter::create(&env, Path::new(PATH), options).expect("memory does not fail");
    let mut versions = 0;
    for i in 0..keys {
        let key = [&b"\x01key"[..], &i.to_be_bytes()[2..], &b"suffix"[..(i % 3) as usize]].concat();
        for &seq in seqs {
            versions += 1;
            let tombstone = seqs.len() > 1 && versions % 5 == 0;
            let kind = if tombstone { Kind::REMOVE } else { Kind::PUT };
            let value = if tombstone { Vec::new() } else { vec![i as u8; value_bytes] };
            let entry = EntryRef { key: &key, seq: SeqNo::new(seq), kind, value: &value };
            writer.add(entry).expect("the keys ascend");
        }
    }
    if ranges {
        let (start, end) = (b"\x01key\0\x02".to_vec(), b"\x01kf".to_vec());
        writer.add_range_tombstone(&RangeTombstone { start, end, seq: SeqNo::new(6) });
    }
    let meta = writer.finish(None).expect("memory does not fail");
    let file = env.fs.open(Path::new(PATH), OpenOptions::read()).expect("the table is there");
    read_range(&*file, 0, meta.file_bytes as usize).expect("memory does not fail")
}
