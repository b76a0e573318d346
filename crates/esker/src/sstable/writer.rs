//! Writes a table from sorted entries.
//!
//! ```text
//!   add(entry) --> BlockBuilder --full--> PartWriter: compress, checksum --> file
//!                                    `-> IndexBuilder: separator, length   key hash --> filter  (by finish)
//! ```
//!
//! Entries must be added in order: key ascending, then sequence number descending. Others
//! are refused.
//!
//! An entry whose block would exceed the limits of the index is refused without any change: the
//! table can still be finished.
//!
//! After an error the table is lost: without `finish` the file has no footer, and no reader opens it.
//! `finish` returns once the file is durable; the caller must sync its directory.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use esker_env::{Env, PageBuf};

use super::block::Block;
use super::block_builder::BlockBuilder;
use super::footer::Footer;
use super::index::IndexLimits;
use super::index_builder::IndexBuilder;
use super::options::{TableCompression, TableOptions};
use super::part_writer::PartWriter;
use super::properties::{Properties, empty_range, encode_tombstones};
use super::root::{RootBuilder, encode_page};
use super::stored::{COMPRESSED_BYTES_MAX, Fingerprint};
use super::{BlockCache, Counts, Table, TableMeta};
use crate::blob::{BlobPointer, BlobReferences};
use crate::encoding::Compression;
use crate::encoding::bloom::BlockedBloom;
use crate::encoding::hash::key_hash;
use crate::types::canary::{self, Canary};
use crate::types::entry::EntryRef;
use crate::types::expiry::value_of;
use crate::types::key::common_prefix_len;
use crate::types::key_range::{End, KeyRange};
use crate::types::range_tombstone::{Fragment, RangeTombstones};
use crate::types::{Error, Result, SeqNo};

/// Number of blocks that `TableCompression::Auto` probes.
const PROBED_BLOCKS: usize = 4;
/// Probing ends after this many bytes, because the blocks stay in memory until the codec is chosen.
const PROBED_BYTES: usize = COMPRESSED_BYTES_MAX;
/// LZ4 is chosen if it reduces the blocks to at most this percentage.
const PROBE_PERCENT_MAX: usize = 88;

/// Writes one table.
pub(crate) struct TableWriter {
    options: TableOptions,
    parts: PartWriter,
    /// The current block.
    builder: BlockBuilder,
    /// The bytes of the block finished last.
    raw: Vec<u8>,
    codec: Codec,
    index: IndexBuilder,
    first_key: Vec<u8>,
    last_key: Vec<u8>,
    last_seq: SeqNo,
    hashes: Vec<u64>,
    properties: Properties,
    /// The newest commit passed to [`note_commit`](Self::note_commit).
    newest_commit: SeqNo,
    tombstones: Vec<Fragment>,
    warm: Option<Warm>,
}

/// The codec once it is chosen; until then, the blocks that wait for it.
enum Codec {
    Probing { waiting: Vec<Vec<u8>>, raw_bytes: usize, packed_bytes: usize },
    Chosen(Compression),
}

/// Blocks kept for the cache.
struct Warm {
    cache: Arc<BlockCache>,
    blocks: Vec<Arc<Block>>,
    bytes: u64,
}

impl Warm {
    /// Keeps a block if the cache has space for it.
    fn keep(&mut self, number: usize, raw: &[u8]) {
        if self.bytes + raw.len() as u64 > self.cache.room_bytes() {
            return;
        }
        let block = Block::parse(PageBuf::copy_of(raw));
        let block = block.expect("sstable_block.1: the builder's blocks are whole");
        self.bytes += block.memory_bytes() as u64;
        // Cached blocks must be contiguous from the first: keeping stops at the first block without space.
        if self.blocks.len() == number {
            self.blocks.push(Arc::new(block));
        }
    }
}

impl TableWriter {
    /// Creates the file, which must not exist.
    pub(crate) fn create(env: &Env, path: &Path, options: TableOptions) -> Result<Self> {
        let parts = PartWriter::create(env, path, options.direct_io)?;
        let codec = match options.compression {
            TableCompression::Auto => Codec::Probing { waiting: Vec::new(), raw_bytes: 0, packed_bytes: 0 },
            TableCompression::None => Codec::Chosen(Compression::None),
            TableCompression::Lz4 => Codec::Chosen(Compression::Lz4),
            #[cfg(feature = "zstd")]
            TableCompression::Zstd => Codec::Chosen(Compression::Zstd),
        };
        Ok(TableWriter {
            options,
            parts,
            builder: BlockBuilder::default(),
            raw: Vec::new(),
            codec,
            index: IndexBuilder::new(),
            first_key: Vec::new(),
            last_key: Vec::new(),
            last_seq: SeqNo::ZERO,
            hashes: Vec::new(),
            properties: Properties {
                counts: Counts::begun(),
                range: empty_range(),
                compression: Compression::None,
                blocks: 0,
                fingerprint: Fingerprint::default(),
                features: 0,
                blobs: BlobReferences::default(),
            },
            newest_commit: SeqNo::ZERO,
            tombstones: Vec::new(),
            warm: None,
        })
    }

    /// Keeps blocks as far as the cache has space, so that [`finish_open`](Self::finish_open) returns a table
    /// with cached blocks.
    pub(crate) fn keep_warm(&mut self, cache: &Arc<BlockCache>) {
        assert!(self.properties.counts.entries == 0, "blocks are kept from the first on");
        self.warm = Some(Warm { cache: cache.clone(), blocks: Vec::new(), bytes: 0 });
    }

    /// Sets smaller limits for the index than those of the format.
    pub(crate) fn limit_index(&mut self, limits: IndexLimits) {
        self.index.limits = limits;
    }

    /// Returns whether the index has reached half of its limits. A caller that cannot end the table at any
    /// key should end it soon.
    pub(crate) fn is_index_half_full(&self) -> bool {
        self.index.is_half_full()
    }

    /// Records that `commit` is in the table. Compactions clear sequence numbers and drop versions, but the
    /// newest commit must still be known.
    pub(crate) fn note_commit(&mut self, commit: SeqNo) {
        self.newest_commit = self.newest_commit.max(commit);
    }

    /// Adds a version.
    pub(crate) fn add(&mut self, entry: EntryRef<'_>) -> Result<()> {
        let first = self.properties.counts.entries == 0;
        let new_key = first || entry.key > &*self.last_key;
        if !new_key && (entry.key < &*self.last_key || entry.seq >= self.last_seq) {
            return Err(self.out_of_order(&entry));
        }
        if u32::try_from(entry.value.len()).is_err() {
            return Err(Error::ValueTooLong { len: entry.value.len() });
        }
        let (split, bytes) =
            (self.options.split_values_over, self.options.block_bytes.min(u32::MAX as usize));
        if !self.builder.is_empty() && !self.builder.has_room(&entry, split, bytes) {
            self.next_block(entry.key)?;
        }
        if new_key {
            if first {
                self.first_key.extend_from_slice(entry.key);
            }
            if self.options.filter_bits_per_key > 0 {
                self.hashes.push(key_hash(entry.key));
            }
        }
        if entry.kind.needs_fetch() {
            self.add_reference(&entry)?;
        }
        self.builder.add(&entry);
        if new_key {
            self.last_key.clear();
            self.last_key.extend_from_slice(entry.key);
        }
        self.last_seq = entry.seq;
        self.properties.counts.add(&entry, new_key);
        self.properties.features |= entry.kind.features();
        Ok(())
    }

    #[inline(never)]
    fn add_reference(&mut self, entry: &EntryRef<'_>) -> Result<()> {
        let pointer = BlobPointer::decode(value_of(entry.kind, entry.value))
            .map_err(|e| e.in_file("blob pointer", &self.parts.path, 0))?;
        if !canary::is_set(Canary::BlobReferenceForgotten) {
            self.properties.blobs.add(&pointer);
        }
        Ok(())
    }

    #[cold]
    fn out_of_order(&self, entry: &EntryRef<'_>) -> Error {
        let (key, last) = (entry.key.escape_ascii(), self.last_key.escape_ascii());
        // Tables outside of a database have one version of each key.
        Error::OutOfOrder(match entry.seq.max(self.last_seq) {
            SeqNo::ZERO => format!("the key `{key}` does not come after the last key, `{last}`"),
            _ => format!(
                "entries must be in key order, versions newest first: `{key}` of commit {} after `{last}` of commit {}",
                entry.seq, self.last_seq
            ),
        })
    }

    /// Adds a range tombstone, in any order. The caller has clipped it to the range of the table.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn add_range_tombstone(&mut self, tombstone: &crate::types::range_tombstone::RangeTombstone) {
        self.add_fragment(tombstone.clone().into());
    }

    /// Adds range tombstones like [`add_range_tombstone`](Self::add_range_tombstone).
    pub(crate) fn add_fragment(&mut self, fragment: Fragment) {
        if fragment.start < fragment.end {
            self.properties.counts.add_seqs(fragment.seqs.oldest(), fragment.seqs.newest());
            self.tombstones.push(fragment);
        }
    }

    /// Approximate size of the file if it were finished now.
    pub(crate) fn estimated_bytes(&self) -> u64 {
        let waiting = match &self.codec {
            Codec::Probing { raw_bytes, .. } => *raw_bytes as u64,
            Codec::Chosen(_) => 0,
        };
        let filter = self.hashes.len() as u64 * u64::from(self.options.filter_bits_per_key) / 8;
        self.parts.position() + waiting + self.builder.data_bytes() + filter + self.index.estimated_bytes()
    }

    /// Number of versions added.
    pub(crate) fn entries(&self) -> u64 {
        self.properties.counts.entries
    }

    /// Ends the block. The next one starts with `key`, which is the last key or a larger one.
    fn next_block(&mut self, key: &[u8]) -> Result<()> {
        let separator = self.index.next_separator(&self.last_key, key)?;
        self.finish_block()?;
        self.index.begin(separator);
        Ok(())
    }

    fn finish_block(&mut self) -> Result<()> {
        self.builder.finish(self.options.split_values_over, &mut self.raw);
        if let Some(warm) = &mut self.warm {
            warm.keep(self.index.blocks(), &self.raw);
        }
        self.index.finish_block();
        self.properties.blocks += 1;
        match &mut self.codec {
            Codec::Chosen(codec) => self.index.note_written(self.parts.write(&self.raw, *codec)?),
            // Such a block is stored uncompressed in any case, so it is not probed.
            Codec::Probing { waiting, .. } if self.raw.len() > COMPRESSED_BYTES_MAX => {
                if !waiting.is_empty() {
                    self.choose_codec()?;
                }
                self.index.note_written(self.parts.write(&self.raw, Compression::None)?);
            }
            Codec::Probing { waiting, raw_bytes, packed_bytes } => {
                *packed_bytes += self.parts.packed_bytes(&self.raw, Compression::Lz4)?;
                *raw_bytes += self.raw.len();
                waiting.push(std::mem::take(&mut self.raw));
                if waiting.len() >= PROBED_BLOCKS || *raw_bytes >= PROBED_BYTES {
                    self.choose_codec()?;
                }
            }
        }
        Ok(())
    }

    /// Ends the probing and writes the waiting blocks.
    fn choose_codec(&mut self) -> Result<()> {
        let Codec::Probing { waiting, raw_bytes, packed_bytes } = &mut self.codec else { return Ok(()) };
        let pays = *packed_bytes * 100 <= *raw_bytes * PROBE_PERCENT_MAX && *raw_bytes > 0;
        let codec = if pays { Compression::Lz4 } else { Compression::None };
        let waiting = std::mem::take(waiting);
        self.codec = Codec::Chosen(codec);
        for raw in &waiting {
            self.index.note_written(self.parts.write(raw, codec)?);
        }
        Ok(())
    }

    /// Writes the remaining parts and makes the file durable. `range` extends the range covered by the table
    /// beyond its own keys and range tombstones.
    pub(crate) fn finish(self, range: Option<KeyRange>) -> Result<TableMeta> {
        Ok(self.complete(range)?.0)
    }

    /// Like `finish`, then opens the table with the kept blocks cached.
    pub(crate) fn finish_open(
        self,
        range: Option<KeyRange>,
        cache: &Arc<BlockCache>,
    ) -> Result<(TableMeta, Arc<Table>)> {
        let (env, path) = (self.parts.env.clone(), self.parts.path.clone());
        let (meta, warm) = self.complete(range)?;
        let table = Table::open(&env, &path, cache)?;
        table.warm(warm);
        Ok((meta, table))
    }

    fn complete(mut self, range: Option<KeyRange>) -> Result<(TableMeta, Vec<Arc<Block>>)> {
        if !self.builder.is_empty() {
            self.finish_block()?;
        }
        self.choose_codec()?;
        let Codec::Chosen(codec) = self.codec else { unreachable!("choose_codec has chosen") };
        let tombstones = RangeTombstones::from_overlapping(std::mem::take(&mut self.tombstones));
        self.complete_properties(codec, &tombstones, range);
        let footer = self.write_parts(&tombstones)?;
        let file_bytes = self.parts.finish(&footer)?;
        let p = self.properties;
        let meta = TableMeta {
            file_bytes,
            range: p.range,
            counts: p.counts,
            fingerprint: p.fingerprint,
            base_seq: SeqNo::ZERO,
            blobs: p.blobs,
        };
        Ok((meta, self.warm.map(|warm| warm.blocks).unwrap_or_default()))
    }

    fn complete_properties(
        &mut self,
        codec: Compression,
        tombstones: &RangeTombstones,
        more: Option<KeyRange>,
    ) {
        let keys = (self.properties.counts.entries > 0)
            .then(|| KeyRange { start: self.first_key.clone(), end: End::Included(self.last_key.clone()) });
        let deleted = tombstones.first().zip(tombstones.last()).map(|(first, last)| KeyRange {
            start: first.start.to_vec(),
            end: End::Excluded(last.end.to_vec()),
        });
        let covered = [keys, deleted, more].into_iter().flatten().reduce(|mut all, part| {
            all.extend(&part);
            all
        });
        let properties = &mut self.properties;
        properties.range = covered.unwrap_or_else(empty_range);
        properties.compression = codec;
        properties.counts = properties.counts.ended(tombstones.fragments().len() as u64);
    }

    /// Writes everything between the data blocks and the footer.
    fn write_parts(&mut self, tombstones: &RangeTombstones) -> Result<Footer> {
        let absent = self.parts.position()..self.parts.position();
        let mut payload = Vec::new();
        let tombstones = if tombstones.is_empty() {
            absent
        } else {
            encode_tombstones(tombstones, &mut payload);
            self.parts.write(&payload, Compression::None)?
        };
        let filter = if self.hashes.is_empty() {
            tombstones.end..tombstones.end
        } else {
            let filter = BlockedBloom::new(self.hashes.len(), self.options.filter_bits_per_key);
            self.hashes.iter().for_each(|&hash| filter.insert(hash));
            payload.clear();
            filter.encode(&mut payload);
            self.parts.write(&payload, Compression::None)?
        };
        let (pages, index) = self.write_index()?;
        payload.clear();
        self.properties.fingerprint = self.parts.fingerprint;
        self.properties.encode(&mut payload);
        let properties = self.parts.write(&payload, Compression::None)?;
        let Properties { counts, features, .. } = &self.properties;
        Ok(Footer {
            tombstones,
            filter,
            pages,
            index,
            properties,
            salt: self.parts.salt,
            newest_commit: self.newest_commit.max(counts.max_seq),
            features: *features,
            is_sealed: self.parts.seal.is_on(),
        })
    }

    /// Writes the pages of the index, if it has any, and the index or its root.
    fn write_index(&mut self) -> Result<(Range<u64>, Range<u64>)> {
        let start = self.parts.position();
        let prefix = &self.first_key[..common_prefix_len(&self.first_key, &self.last_key)];
        let mut payload = Vec::new();
        let page_blocks = self.options.page_blocks.max(1);
        match self.index.pages(page_blocks) {
            None => self.index.encode(prefix, &mut payload),
            Some(pages) => {
                let mut root = RootBuilder::new(page_blocks);
                for page in pages {
                    payload.clear();
                    encode_page(page, &mut payload);
                    let stored = self.parts.write(&payload, Compression::None)?;
                    root.add(page, stored.end - stored.start);
                }
                payload.clear();
                root.encode(prefix, &mut payload);
            }
        }
        let pages = start..self.parts.position();
        Ok((pages, self.parts.write(&payload, Compression::None)?))
    }

    /// Removes the unfinished file.
    pub(crate) fn abandon(self) -> Result<()> {
        self.parts.abandon()
    }
}
