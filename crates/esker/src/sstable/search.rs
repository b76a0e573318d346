//! Finds the stored parts of a table that has lost its footer or its index.
//!
//! ```text
//!   offset 0 --grow the part a byte at a time until its checksum fits--> a part; the next starts behind it
//!            `-no checksum fits: damage--> try later offsets where a block may begin
//! ```
//!
//! SE1. A part counts only if its checksum fits and its content decodes: chance does not make one.
//! SE2. The work is bounded: bytes looked at are at most [`WORK_FACTOR`] times the file, those of what only looks like a part
//!      included, and one block is held in memory.
//! SE3. What cannot be read is asked for once, since each answer may take a disk seconds, and costs no more than a piece of
//!      [`PIECE_BYTES`].

use std::collections::BTreeSet;
use std::ops::Range;

use esker_env::{File, PageBuf, read_range};

use super::block::Block;
use super::index::Index;
use super::properties::{Properties, decode_tombstones};
use super::stored::{self, COMPRESSED_BYTES_MAX, Salt, TRAILER_BYTES};
use crate::encoding::Compression;
use crate::encoding::bloom::BlockedBloom;
use crate::encoding::checksum::crc32c_append;
use crate::types::range_tombstone::RangeTombstones;

/// SE2.
const WORK_FACTOR: u64 = 64;
/// SE2, for small files.
const WORK_BYTES_MIN: u64 = 16 << 20;
/// A block behind damage is looked for up to this length; one that is longer is lost with the damage.
const RESUMED_BYTES_MAX: u64 = 1 << 20;
/// Bytes read at a time.
const CHUNK_BYTES: u64 = 64 << 10;
/// The same in a chunk that cannot be read as a whole (SE3).
const PIECE_BYTES: u64 = 4 << 10;

/// What was found.
#[derive(Default)]
pub(super) struct FoundParts {
    /// What the checksums of the parts begin with.
    pub salt: Salt,
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
    /// The properties were met behind the blocks without a gap: no block and no range tombstones are missing there.
    pub complete: bool,
}

/// What a part turned out to be.
enum Part {
    Block,
    Tombstones(RangeTombstones),
    Index,
    Properties(Box<Properties>),
    Filter,
}

/// Looks for parts before `end` whose checksums begin with this salt.
pub(super) fn parts(file: &dyn File, file_bytes: u64, end: u64, salt: Salt) -> FoundParts {
    let end = end.min(file_bytes);
    let mut search = Search {
        bytes: Chunks::new(file, file_bytes),
        work: file_bytes.saturating_mul(WORK_FACTOR).max(WORK_BYTES_MIN),
        salt,
    };
    let mut found = FoundParts { salt, ..FoundParts::default() };
    let (mut at, mut gap_start) = (0, None);
    while at < end && search.work > 0 {
        let limit = if gap_start.is_some() { end.min(at.saturating_add(RESUMED_BYTES_MAX)) } else { end };
        let part = match gap_start {
            Some(_) if !search.may_begin(at) => None,
            _ => search.part_at(at, limit, &found),
        };
        let Some((part, part_end)) = part else {
            gap_start.get_or_insert(at);
            at += 1;
            continue;
        };
        if let Some(start) = gap_start.take() {
            found.gaps.push(start..at);
        }
        match part {
            Part::Block => {
                found.blocks.push(at..part_end);
                found.blocks_end = part_end;
            }
            Part::Tombstones(tombstones) => found.tombstones = tombstones,
            Part::Properties(properties) => found.properties = Some(*properties),
            Part::Filter | Part::Index => {}
        }
        at = part_end;
    }
    // What follows the properties is the footer.
    let rest = gap_start.unwrap_or(at);
    if rest < end && found.properties.is_none() {
        found.gaps.push(rest..end);
    }
    found.complete = found.properties.is_some() && found.gaps.iter().all(|gap| gap.end <= found.blocks_end);
    found
}

struct Search<'a> {
    bytes: Chunks<'a>,
    work: u64,
    salt: Salt,
}

impl Search<'_> {
    /// The part that starts at `at` and ends by `limit`, and its end.
    fn part_at(&mut self, at: u64, limit: u64, found: &FoundParts) -> Option<(Part, u64)> {
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
            if let Some(part) = payload.and_then(|payload| recognise(payload, at, found)) {
                return Some((part, end));
            }
            if last != Compression::None.id() {
                // So much may have been unpacked in vain.
                self.spend(COMPRESSED_BYTES_MAX as u64)?;
            }
        }
        None
    }

    /// Takes note of bytes looked at; none if that is more than may be, which ends the search (SE2).
    fn spend(&mut self, bytes: u64) -> Option<()> {
        let left = self.work.checked_sub(bytes);
        self.work = left.unwrap_or(0);
        left.map(|_| ())
    }

    /// Whether a block may begin here: its header, or the length before a compressed one, makes sense.
    fn may_begin(&mut self, at: u64) -> bool {
        self.work = self.work.saturating_sub(1);
        let (Some(first), Some(packed)) = (self.bytes.u32(at), self.bytes.u32(at + 4)) else { return false };
        let raw = (1..=1 << 16).contains(&first) && packed & 0xFF < 64 && packed >> 8 < 1 << 16;
        // No block that is compressed is shorter than its header, or longer than the usual by much.
        let packed = (16..=RESUMED_BYTES_MAX as u32).contains(&first);
        raw || packed
    }
}

/// What the payload of a part at `at` is (SE1).
fn recognise(payload: PageBuf, at: u64, found: &FoundParts) -> Option<Part> {
    if let Ok(properties) = Properties::decode(&payload) {
        return Some(Part::Properties(Box::new(properties)));
    }
    if Index::decode(&payload).is_ok_and(|index| index.blocks_end() <= at) {
        return Some(Part::Index);
    }
    if let Ok(tombstones) = decode_tombstones(&payload) {
        return Some(Part::Tombstones(tombstones));
    }
    let is_filter = !found.blocks.is_empty() && BlockedBloom::decode(&payload).is_ok();
    if Block::parse(payload).is_ok() {
        return Some(Part::Block);
    }
    is_filter.then_some(Part::Filter)
}

/// The bytes of a file, read in chunks, and in pieces where a chunk cannot be read.
struct Chunks<'a> {
    file: &'a dyn File,
    file_bytes: u64,
    /// Where the bytes in memory begin.
    base: u64,
    chunk: Vec<u8>,
    /// The chunks and the pieces that cannot be read: how long they are, and where they begin.
    bad: BTreeSet<(u64, u64)>,
}

impl<'a> Chunks<'a> {
    fn new(file: &'a dyn File, file_bytes: u64) -> Self {
        Chunks { file, file_bytes, base: 0, chunk: Vec::new(), bad: BTreeSet::new() }
    }

    #[inline]
    fn get(&mut self, at: u64) -> Option<u8> {
        if at < self.base || at - self.base >= self.chunk.len() as u64 {
            self.load(at, CHUNK_BYTES).or_else(|| self.load(at, PIECE_BYTES))?;
        }
        self.chunk.get((at - self.base) as usize).copied()
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

    /// Reads the aligned stretch of so many bytes that holds the one at `at`; none if it cannot be read (SE3).
    #[cold]
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

    /// A file of these bytes, in a file system that counts.
    fn file_of(bytes: &[u8]) -> (FaultFs, Arc<dyn File>) {
        let fs = FaultFs::new(Arc::new(MemFs::new()));
        let file = fs.open(Path::new("7.sst"), OpenOptions::create_new()).unwrap();
        file.write_all_at(bytes, 0).unwrap();
        (fs, file)
    }

    #[test]
    fn se2_checksums_that_fit_everywhere_cost_no_more_than_others() {
        for codec in [Compression::None, Compression::Lz4] {
            // No part begins so; behind it each fifth byte is followed by the checksum of all before.
            let mut bytes = vec![0xFF; 16];
            let mut crc = crc32c_append(Salt::NONE.at(0), &bytes);
            while bytes.len() < 200 << 10 {
                let sum = crc32c_append(crc, &[codec.id()]).to_le_bytes();
                let five = [codec.id(), sum[0], sum[1], sum[2], sum[3]];
                crc = crc32c_append(crc, &five);
                bytes.extend_from_slice(&five);
            }
            let (fs, file) = file_of(&bytes);
            let len = bytes.len() as u64;
            let found = parts(&*file, len, len, Salt::NONE);
            assert!(found.blocks.is_empty() && found.gaps.len() == 1 && found.gaps[0] == (0..len));
            let most = (len * WORK_FACTOR).max(WORK_BYTES_MIN) + CHUNK_BYTES;
            assert!(fs.read_bytes() <= most, "{codec:?}: {} bytes read", fs.read_bytes());
        }
    }

    #[test]
    fn se3_what_cannot_be_read_is_asked_for_once() {
        let (fs, file) = file_of(&[1; 300_000]);
        let fails = FaultRule::new(&[OpKind::Read], FaultAction::Fail(ErrorKind::Other));
        fs.add(fails.on_bytes(100_000..100_001).forever());
        let found = parts(&*file, 300_000, 300_000, Salt::NONE);
        assert!(found.blocks.is_empty() && found.gaps.len() == 1 && found.gaps[0] == (0..300_000));
        assert_eq!(fs.fired(), 2, "the chunk, and a piece of it");
        let mut bytes = Chunks::new(&*file, 300_000);
        let lost: Vec<u64> = (0..300_001).filter(|at| bytes.get(*at).is_none()).collect();
        assert!(lost.into_iter().eq((98_304..102_400).chain([300_000])), "a piece, and what is no byte");
    }
}
