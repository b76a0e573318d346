//! Finds the stored parts of a table that has lost its footer or its index.
//!
//! ```text
//!   offset 0 --grow the part a byte at a time until its checksum fits--> a part; the next starts behind it
//!            `-no checksum fits: damage--> try later offsets where a block may begin; behind the last block, those of other parts
//! ```
//!
//! search.1. A part counts only if its checksum fits and its content decodes: chance does not make one.
//! search.2. The work is bounded: bytes looked at are at most [`WORK_FACTOR`] times the file, those of what only looks like a part
//!      included, and one block is held in memory.
//! search.3. What cannot be read is asked for once, since each answer may take a disk seconds, and costs no more than a piece of
//!      [`PIECE_BYTES`].
//! search.4. Nothing stored says what a part is, and the bytes of one kind may decode as another: a part is what its place allows, by
//!      the part before it and the blocks found. Behind damage one that could be several is none.
//! search.5. Nothing is missing only if the properties were met and count as much as was found.
//! search.6. Behind damage blocks come first, and each is looked for no further than what would be its header allows: the bytes of a damaged
//!      block look like headers at many places, which together must not cost the work that the blocks behind it need.

use std::collections::BTreeSet;
use std::ops::Range;

use esker_env::{File, PageBuf, read_range};

use super::block::{self, ALL_VISIBLE, Block, FIXED_KEYS, FIXED_VALUES, HEAD_BYTES, HEADER_BYTES};
use super::index::Index;
use super::properties::{Properties, decode_tombstones};
use super::stored::{self, COMPRESSED_BYTES_MAX, Salt, TRAILER_BYTES};
use crate::encoding::Compression;
use crate::encoding::bloom::BlockedBloom;
use crate::encoding::checksum::crc32c_append;
use crate::types::range_tombstone::RangeTombstones;

/// search.2.
const WORK_FACTOR: u64 = 64;
/// search.2, for small files.
const WORK_BYTES_MIN: u64 = 16 << 20;
/// A block behind damage is looked for up to this length; one that is longer is lost with the damage.
const RESUMED_BYTES_MAX: u64 = 1 << 20;
/// No compressed block begins with a lower byte, behind its length: LZ4 begins with literals, whose number is in the upper half of the
/// byte; zstd and gzip have bytes of their own there, and Snappy has the length again.
const PACKED_BYTE_MIN: u8 = 16;
/// Bytes read at a time.
const CHUNK_BYTES: u64 = 64 << 10;
/// The same in a chunk that cannot be read as a whole (search.3).
const PIECE_BYTES: u64 = 4 << 10;

/// What was found.
#[derive(Default)]
pub(super) struct FoundParts {
    /// The data blocks, in the file's order.
    pub blocks: Vec<Range<u64>>,
    /// Where the last block ends.
    pub blocks_end: u64,
    /// The range tombstones.
    pub tombstones: RangeTombstones,
    /// The properties.
    pub properties: Option<Properties>,
    /// Stretches that are no part.
    pub gaps: Vec<Range<u64>>,
    /// The properties were met behind the blocks without a gap, and count as much as was found (search.5): no block and no range
    /// tombstones are missing there.
    pub complete: bool,
}

impl FoundParts {
    /// search.5. With gaps between the blocks their number says nothing: the gaps are what is missing.
    fn is_complete(&self) -> bool {
        let Some(properties) = &self.properties else { return false };
        let has_gap_behind = self.gaps.iter().any(|gap| gap.end > self.blocks_end);
        let all_blocks = !self.gaps.is_empty() || properties.blocks == self.blocks.len() as u64;
        let all_tombstones = properties.counts.range_tombstones == self.tombstones.fragments().len() as u64;
        !has_gap_behind && all_blocks && all_tombstones
    }
}

/// What a part turned out to be.
enum Part {
    Block,
    Tombstones(RangeTombstones),
    Filter,
    Index,
    Properties(Box<Properties>),
}

/// What stands directly before a part, in the order of a file; blocks stand at the start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Before {
    Blocks,
    Tombstones,
    Filter,
    Index,
    Damage,
}

/// Looks for parts before `end` whose checksums begin with this salt.
pub(super) fn parts(file: &dyn File, file_bytes: u64, end: u64, salt: Salt) -> FoundParts {
    let end = end.min(file_bytes);
    let mut search = Search {
        bytes: Chunks::new(file, file_bytes),
        work: file_bytes.saturating_mul(WORK_FACTOR).max(WORK_BYTES_MIN),
        salt,
    };
    let mut found = FoundParts::default();
    let (mut at, mut gap_start) = (0, None::<u64>);
    let mut before = Before::Blocks;
    let mut is_behind_blocks = false;
    while at < end && search.work > 0 && found.properties.is_none() {
        let limit = match gap_start {
            None => Some(end),
            Some(_) if !is_behind_blocks => search.block_ends_by(at),
            Some(_) if search.may_begin(at) => Some(at.saturating_add(RESUMED_BYTES_MAX)),
            Some(_) => None,
        };
        let part = limit.and_then(|limit| search.part_at(at, limit.min(end), &found, before));
        let is_block = matches!(part, Some((Part::Block, _)));
        if let Some(start) = gap_start
            && !is_behind_blocks
            && !is_block
            && (part.is_some() || at + 1 == end)
        {
            // No block follows: this stretch is searched once more, for all kinds of parts (search.6).
            (is_behind_blocks, at) = (true, start + 1);
            continue;
        }
        let Some((part, part_end)) = part else {
            gap_start.get_or_insert(at);
            before = Before::Damage;
            at += 1;
            continue;
        };
        if let Some(start) = gap_start.take() {
            found.gaps.push(start..at);
        }
        before = match part {
            Part::Block => {
                found.blocks.push(at..part_end);
                found.blocks_end = part_end;
                Before::Blocks
            }
            Part::Tombstones(tombstones) => {
                found.tombstones = tombstones;
                Before::Tombstones
            }
            Part::Filter => Before::Filter,
            Part::Index => Before::Index,
            // What follows is the footer.
            Part::Properties(properties) => {
                found.properties = Some(*properties);
                before
            }
        };
        at = part_end;
    }
    let rest = gap_start.unwrap_or(at);
    if rest < end && found.properties.is_none() {
        found.gaps.push(rest..end);
    }
    found.complete = found.is_complete();
    let stated = found.properties.as_ref().map(|properties| properties.counts.range_tombstones);
    if stated.is_some_and(|stated| stated != found.tombstones.fragments().len() as u64) {
        // Something else that could be read so: it must hide nothing.
        found.tombstones = RangeTombstones::default();
    }
    found
}

struct Search<'a> {
    bytes: Chunks<'a>,
    work: u64,
    salt: Salt,
}

impl Search<'_> {
    /// The part that starts at `at` and ends by `limit`, and its end.
    fn part_at(&mut self, at: u64, limit: u64, found: &FoundParts, before: Before) -> Option<(Part, u64)> {
        let mut crc = self.salt.at(at);
        // The part is [payload][codec][crc]: with `covered` bytes of payload and codec, the checksum follows.
        for covered_end in at + 1..limit.saturating_sub(3) {
            self.spend(1)?;
            let last = self.bytes.get(covered_end - 1)?;
            crc = crc32c_append(crc, &[last]);
            if Compression::from_id(last).is_none() || self.bytes.u32(covered_end)? != crc {
                continue;
            }
            let end = covered_end + 4;
            if end - at < TRAILER_BYTES as u64 {
                continue;
            }
            self.spend(end - at)?;
            let stored = read_range(self.bytes.file, at, (end - at) as usize).ok()?;
            let payload = stored::open(&stored, self.salt, at).ok();
            if let Some(part) = payload.and_then(|payload| recognise(payload, at, found, before)) {
                return Some((part, end));
            }
            if last != Compression::None.id() {
                // So much may have been unpacked in vain.
                self.spend(COMPRESSED_BYTES_MAX as u64)?;
            }
        }
        None
    }

    /// Takes note of bytes looked at; none if that is more than may be, which ends the search (search.2).
    fn spend(&mut self, bytes: u64) -> Option<()> {
        let left = self.work.checked_sub(bytes);
        self.work = left.unwrap_or(0);
        left.map(|_| ())
    }

    /// By where a block that begins here ends, trailer included, going by its header, or by the length before a compressed one, which is
    /// shorter than that (see stored.rs). None if neither makes sense.
    fn block_ends_by(&mut self, at: u64) -> Option<u64> {
        self.work = self.work.saturating_sub(1);
        let (first, second) = (self.bytes.u32(at)?, self.bytes.u32(at + 4)?);
        let (third, fourth) = (self.bytes.u32(at + 8)?, self.bytes.u32(at + 12)?);
        let is_packed = (16..=RESUMED_BYTES_MAX as u32).contains(&first) && second as u8 >= PACKED_BYTE_MIN;
        let packed = is_packed.then_some(u64::from(first));
        let bytes = block_bytes_max([first, second, third, fourth]).max(packed)?;
        Some(at.saturating_add((bytes + TRAILER_BYTES as u64).min(RESUMED_BYTES_MAX)))
    }

    /// Whether a part may begin here: as the header of a block, or as the length before a compressed one, its first bytes make sense.
    fn may_begin(&mut self, at: u64) -> bool {
        self.work = self.work.saturating_sub(1);
        let (Some(first), Some(packed)) = (self.bytes.u32(at), self.bytes.u32(at + 4)) else { return false };
        let raw = (1..=1 << 16).contains(&first) && packed & 0xFF < 64 && packed >> 8 < 1 << 16;
        // No block that is compressed is shorter than its header, or longer than the usual by much.
        let packed = (16..=RESUMED_BYTES_MAX as u32).contains(&first);
        raw || packed
    }
}

/// The most bytes of a block with this header; none if it is no header, or that of a block which is too long to be looked for.
fn block_bytes_max([count, packed, rest_len, value_len]: [u32; 4]) -> Option<u64> {
    let (flags, prefix_len) = (packed as u8, packed >> 8);
    let has = |flag: u8| flags & flag != 0;
    let entry_bytes = HEAD_BYTES + if has(ALL_VISIBLE) { 0 } else { block::TRAILER_BYTES };
    let bytes_min = HEADER_BYTES as u64 + u64::from(count) * entry_bytes as u64 + u64::from(prefix_len);
    let has_meaning = count > 0 && flags < 64 && prefix_len < 1 << 16;
    // A length that not all have is stored as 0.
    let lengths_fit = (has(FIXED_KEYS) || rest_len == 0) && (has(FIXED_VALUES) || value_len == 0);
    if !has_meaning || !lengths_fit || bytes_min > RESUMED_BYTES_MAX {
        return None;
    }
    if !has(FIXED_KEYS) || !has(FIXED_VALUES) {
        return Some(RESUMED_BYTES_MAX);
    }
    let bytes = bytes_min + u64::from(count) * (u64::from(rest_len) + u64::from(value_len));
    (bytes <= RESUMED_BYTES_MAX).then_some(bytes)
}

/// What the payload of a part at `at` is (search.1, search.4).
fn recognise(payload: PageBuf, at: u64, found: &FoundParts, before: Before) -> Option<Part> {
    let mut could_be = Vec::new();
    if before >= Before::Index
        && let Ok(properties) = Properties::decode(&payload)
    {
        could_be.push(Part::Properties(Box::new(properties)));
    }
    if before != Before::Index && Index::decode(&payload).is_ok_and(|index| is_of(&index, at, found, before))
    {
        could_be.push(Part::Index);
    }
    if (before == Before::Blocks || before == Before::Damage)
        && let Ok(tombstones) = decode_tombstones(&payload)
    {
        could_be.push(Part::Tombstones(tombstones));
    }
    let may_be_filter = before <= Before::Tombstones || before == Before::Damage;
    let is_filter = may_be_filter && !found.blocks.is_empty() && BlockedBloom::decode(&payload).is_ok();
    if (before == Before::Blocks || before == Before::Damage) && Block::parse(payload).is_ok() {
        could_be.push(Part::Block);
    }
    // Most bytes of the right length are one.
    if could_be.is_empty() && is_filter {
        could_be.push(Part::Filter);
    }
    if before == Before::Damage && could_be.len() > 1 {
        return None;
    }
    could_be.into_iter().next()
}

/// Whether an index at `at` is of the table whose blocks were found: it knows all of them, and no others if nothing is damaged.
fn is_of(index: &Index, at: u64, found: &FoundParts, before: Before) -> bool {
    // A gap that the index ends is none yet.
    let has_gap = before == Before::Damage || !found.gaps.is_empty();
    let mut extents = (0..index.len()).map(|block| index.extent(block));
    let knows_all = found.blocks.iter().all(|block| extents.any(|extent| extent == *block));
    knows_all && index.blocks_end() <= at && (has_gap || index.len() == found.blocks.len())
}

/// The bytes of a file, read in chunks, and in pieces where a chunk cannot be read.
struct Chunks<'a> {
    file: &'a dyn File,
    file_bytes: u64,
    /// Where the bytes in memory begin.
    base: u64,
    chunk: Vec<u8>,
    /// Those that were in use before: what crosses a border of chunks goes back and forth between two.
    other: (u64, Vec<u8>),
    /// The chunks and the pieces that cannot be read: how long they are, and where they begin.
    bad: BTreeSet<(u64, u64)>,
}

impl<'a> Chunks<'a> {
    fn new(file: &'a dyn File, file_bytes: u64) -> Self {
        Chunks { file, file_bytes, base: 0, chunk: Vec::new(), other: (0, Vec::new()), bad: BTreeSet::new() }
    }

    #[inline]
    fn get(&mut self, at: u64) -> Option<u8> {
        if !self.holds(at) {
            self.turn_to(at)?;
        }
        self.chunk.get((at - self.base) as usize).copied()
    }

    #[inline]
    fn holds(&self, at: u64) -> bool {
        at >= self.base && at - self.base < self.chunk.len() as u64
    }

    /// Has the byte at `at` in memory, and with it those that were in use last.
    #[cold]
    fn turn_to(&mut self, at: u64) -> Option<()> {
        std::mem::swap(&mut self.base, &mut self.other.0);
        std::mem::swap(&mut self.chunk, &mut self.other.1);
        if self.holds(at) {
            return Some(());
        }
        self.load(at, CHUNK_BYTES).or_else(|| self.load(at, PIECE_BYTES))
    }

    #[inline]
    fn u32(&mut self, at: u64) -> Option<u32> {
        let relative = at.checked_sub(self.base).map_or(usize::MAX, |n| n as usize);
        if let Some(four) = self.chunk.get(relative..).and_then(|rest| rest.first_chunk::<4>()) {
            return Some(u32::from_le_bytes(*four));
        }
        let mut four = [0; 4];
        for (i, byte) in four.iter_mut().enumerate() {
            *byte = self.get(at + i as u64)?;
        }
        Some(u32::from_le_bytes(four))
    }

    /// Reads the aligned stretch of so many bytes that holds the one at `at`; none if it cannot be read (search.3).
    fn load(&mut self, at: u64, bytes: u64) -> Option<()> {
        let start = at / bytes * bytes;
        if at >= self.file_bytes || self.bad.contains(&(bytes, start)) {
            return None;
        }
        let Ok(chunk) = read_range(self.file, start, (self.file_bytes - start).min(bytes) as usize) else {
            self.bad.insert((bytes, start));
            return None;
        };
        (self.base, self.chunk) = (start, chunk);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::path::Path;
    use std::sync::Arc;

    use esker_env::{FaultAction, FaultFs, FaultRule, Fs, MemFs, OpKind, OpenOptions};

    use super::*;
    use crate::sstable::Counts;
    use crate::sstable::properties::encode_tombstones;
    use crate::sstable::stored::Fingerprint;
    use crate::types::SeqNo;
    use crate::types::key_range::{End, KeyRange};
    use crate::types::range_tombstone::RangeTombstone;

    const SALT: Salt = Salt::new(7);

    /// A file of these bytes, in a file system that counts.
    fn file_of(bytes: &[u8]) -> (FaultFs, Arc<dyn File>) {
        let fs = FaultFs::new(Arc::new(MemFs::new()));
        let file = fs.open(Path::new("7.sst"), OpenOptions::create_new()).unwrap();
        file.write_all_at(bytes, 0).unwrap();
        (fs, file)
    }

    #[test]
    fn search_4_the_place_decides_between_two_meanings() {
        let key = |n: u64| [&[1][..], &n.to_be_bytes()].concat();
        let removed = RangeTombstone { start: key(6), end: key(9), seq: SeqNo::new(100) };
        let mut bytes = Vec::new();
        encode_tombstones(&RangeTombstones::new([removed]), &mut bytes);
        let found = FoundParts::default();
        let part = |before| match recognise(PageBuf::copy_of(&bytes), 0, &found, before) {
            Some(Part::Tombstones(_)) => "range tombstones",
            Some(Part::Properties(_)) => "properties",
            Some(_) => "other",
            None => "none",
        };
        assert_eq!(part(Before::Blocks), "range tombstones");
        assert_eq!(part(Before::Index), "properties");
        assert_eq!(part(Before::Tombstones), "none");
        assert_eq!(part(Before::Filter), "none");
        assert_eq!(part(Before::Damage), "none", "it may be both");
    }

    #[test]
    fn search_5_all_is_found_only_if_the_properties_count_as_much() {
        let properties = |blocks, range_tombstones| Properties {
            blobs: Default::default(),
            counts: Counts { entries: 3, keys: 3, range_tombstones, ..Counts::default() },
            range: KeyRange { start: b"a".to_vec(), end: End::Included(b"b".to_vec()) },
            compression: Compression::None,
            blocks,
            fingerprint: Fingerprint::default(),
        };
        let found = |gap: Option<Range<u64>>, properties: Option<Properties>| FoundParts {
            blocks: vec![0..100, 150..200],
            blocks_end: 200,
            gaps: gap.into_iter().collect(),
            properties,
            ..FoundParts::default()
        };
        assert!(found(None, Some(properties(2, 0))).is_complete());
        assert!(found(Some(100..150), Some(properties(3, 0))).is_complete(), "the gap tells");
        assert!(!found(None, None).is_complete());
        assert!(!found(None, Some(properties(3, 0))).is_complete());
        assert!(!found(None, Some(properties(2, 1))).is_complete());
        assert!(!found(Some(100..150), Some(properties(2, 1))).is_complete());
        assert!(!found(Some(200..210), Some(properties(2, 0))).is_complete());
    }

    #[test]
    fn search_2_checksums_that_fit_everywhere_cost_no_more_than_others() {
        for codec in [Compression::None, Compression::Lz4] {
            // No part begins so; behind it each fifth byte is followed by the checksum of all before.
            let mut bytes = vec![0xFF; 16];
            let mut crc = crc32c_append(SALT.at(0), &bytes);
            while bytes.len() < 200 << 10 {
                let sum = crc32c_append(crc, &[codec.id()]).to_le_bytes();
                let five = [codec.id(), sum[0], sum[1], sum[2], sum[3]];
                crc = crc32c_append(crc, &five);
                bytes.extend_from_slice(&five);
            }
            let (fs, file) = file_of(&bytes);
            let len = bytes.len() as u64;
            let found = parts(&*file, len, len, SALT);
            assert!(found.blocks.is_empty() && found.gaps.len() == 1 && found.gaps[0] == (0..len));
            let most = (len * WORK_FACTOR).max(WORK_BYTES_MIN) + CHUNK_BYTES;
            assert!(fs.read_bytes() <= most, "{codec:?}: {} bytes read", fs.read_bytes());
        }
    }

    #[test]
    fn search_6_a_block_ends_by_what_its_header_allows() {
        let ends_by = |words: [u32; 4]| {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let (_fs, file) = file_of(&bytes);
            let mut search = Search { bytes: Chunks::new(&*file, 16), work: 100, salt: SALT };
            search.block_ends_by(0)
        };
        let fixed = u32::from(FIXED_KEYS | FIXED_VALUES);
        assert_eq!(ends_by([3, fixed | 5 << 8, 2, 7]), Some(16 + 3 * (4 + 8) + 5 + 3 * 9 + 5));
        assert_eq!(ends_by([3, fixed, 2, 1 << 20]), None, "too long");
        assert_eq!(ends_by([3, u32::from(FIXED_KEYS), 2, 0]), Some(RESUMED_BYTES_MAX), "values differ");
        assert_eq!(ends_by([3, u32::from(FIXED_KEYS), 2, 1]), None, "a length that not all have");
        assert_eq!(ends_by([90_000, 0, 0, 0]), None, "heads and trailers alone are too much");
        assert_eq!(ends_by([90_000, u32::from(ALL_VISIBLE), 0, 0]), Some(RESUMED_BYTES_MAX));
        assert_eq!(ends_by([8_192, 0x6161_61F0, 1, 1]), Some(8_192 + 5), "compressed");
        assert_eq!(ends_by([8_192, 0x6161_6100, 1, 1]), None, "nothing compressed begins so");
        assert_eq!(ends_by([2 << 20, 0x6161_61F0, 1, 1]), None);
    }

    #[test]
    fn search_3_what_cannot_be_read_is_asked_for_once() {
        let (fs, file) = file_of(&[1; 300_000]);
        let fails = FaultRule::new(&[OpKind::Read], FaultAction::Fail(ErrorKind::Other));
        fs.add(fails.on_bytes(100_000..100_001).forever());
        let found = parts(&*file, 300_000, 300_000, SALT);
        assert!(found.blocks.is_empty() && found.gaps.len() == 1 && found.gaps[0] == (0..300_000));
        assert_eq!(fs.fired(), 2, "the chunk, and a piece of it");
        let mut bytes = Chunks::new(&*file, 300_000);
        let lost: Vec<u64> = (0..300_001).filter(|at| bytes.get(*at).is_none()).collect();
        assert!(lost.into_iter().eq((98_304..102_400).chain([300_000])), "a piece, and what is no byte");
    }
}
