//! An index: finds the block that may hold a key. A large table has one index for each page of blocks, and
//! another one, the root, which finds the page (`root.rs`).
//!
//! ```text
//!   key --table prefix--> head, 8 bytes --layers of nodes of 16 heads--> block
//!                                          `-equal heads in a node--> full separators
//!
//!   blocks:       [a ... c] [f ... h] [h ... k]        separators:  "" | "d" | "h", continues
//! ```
//!
//! The separator of a block is larger than every key of the preceding block, or equal to its last
//! key if the block continues the versions of that key. It is not larger than the first key of its own
//! block. The first separator is empty.
//!
//! - Blocks and bytes of separators are counted with 32 bits. The writer never exceeds this, and the
//!   reader refuses more.
//!
//! `find` returns the first block that may hold the key, so that a search meets the newest version of a key
//! first. All separators but the first share a prefix, which is stored once. Blocks are contiguous, so their
//! offsets are sums of lengths. Blocks are numbered across the whole table. The first separator of a page is
//! stored in the root, and each page in memory has it, and that of the next page, in its [`PagePosition`].
//!
//! The tree is static, like the "static search trees" of Slotin (en.algorithmica.org/hpc) and of Groot
//! Koerkamp. Each layer holds every 16th head of the layer below; the rank in a node is counted without
//! branches. The heads of a node omit the common prefix of its separators from the second one on, if it is at
//! least half as long as a head. The first separator is not larger than any key that is looked up in the
//! node.
//!
//! Bytes: docs/formats/sstable.md

use std::ops::Range;

use super::block_search::{NODE, Simd};
use super::footer::Footer;
use super::parts::Parts;
use crate::encoding::bytes::{ByteReader, Decoded, put_string, put_varint};
use crate::types::key::{common_prefix_len, head8};
use crate::types::{Error, Result};

/// Maximum size of an index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IndexLimits {
    /// Number of blocks.
    pub blocks: u64,
    /// Bytes of separators; each may include the prefix of the table.
    pub separator_bytes: u64,
}

impl IndexLimits {
    /// The limits of the format.
    pub(crate) const MAX: IndexLimits =
        IndexLimits { blocks: u32::MAX as u64 - 1, separator_bytes: u32::MAX as u64 };

    /// Returns whether an index of this size is within the limits.
    pub(super) fn holds(&self, blocks: u64, separator_bytes: u64) -> bool {
        blocks <= self.blocks && separator_bytes <= self.separator_bytes
    }
}

/// What the writer knows about a block.
pub(super) struct IndexEntry {
    pub stored_len: u64,
    pub separator: Vec<u8>,
    pub continues: bool,
}

/// The separator of a block, and whether its first key is the last key of the block before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Edge {
    pub separator: Box<[u8]>,
    pub continues: bool,
}

/// Where the blocks of an index lie in the table. The default: at the start, and there are no others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PagePosition {
    /// Number of the first block.
    pub first: usize,
    /// Its offset in the file.
    pub start: u64,
    /// Its edge.
    pub before: Edge,
    /// Edge of the first block after those of the index.
    pub after: Option<Edge>,
}

/// Encodes an index. `prefix` must be a prefix of all separators except the first, which is left out.
pub(super) fn encode(prefix: &[u8], entries: &[IndexEntry], out: &mut Vec<u8>) {
    put_string(out, prefix);
    put_varint(out, entries.len() as u64);
    for (number, entry) in entries.iter().enumerate() {
        let (continues, separator) = match number {
            0 => (false, &[][..]),
            _ => (entry.continues, &entry.separator[prefix.len()..]),
        };
        put_varint(out, entry.stored_len << 1 | u64::from(continues));
        put_string(out, separator);
    }
}

#[repr(align(64))]
#[derive(Clone)]
struct Node([u64; NODE]);

/// An index in memory.
pub(crate) struct Index {
    prefix: Box<[u8]>,
    position: PagePosition,
    /// All layers, starting with the heads of the blocks. Unused heads of the last node of a layer are
    /// `u64::MAX`.
    nodes: Box<[Node]>,
    /// Length of the common prefix that the heads of each node omit; empty if all are zero.
    skipped: Box<[u32]>,
    /// The first node and the number of heads of each layer, from the top down.
    layers: Vec<(usize, usize)>,
    /// Number of blocks between adjacent separators of the top node.
    top_stride: usize,
    blocks: usize,
    /// Offset of each block in the file, and the end of the last one.
    offsets: Box<[u64]>,
    separators: Vec<u8>,
    separator_ends: Box<[u32]>,
    /// Blocks whose first key equals the last key of the preceding block, ascending.
    continued: Box<[u32]>,
    simd: Simd,
}

impl Index {
    /// Reads the index of a table without pages.
    pub(super) fn read(parts: &Parts<'_>, footer: &Footer) -> Result<Index> {
        let index =
            parts.read("index", &footer.index, |bytes| Index::decode(bytes, PagePosition::default()))?;
        if index.blocks_end() != footer.blocks_end() {
            let detail = format!("its blocks end at {}", index.blocks_end());
            return Err(Error::corrupt("index", parts.path, footer.index.start, detail));
        }
        Ok(index)
    }

    /// Decodes an index with blocks at this position.
    pub(super) fn decode(bytes: &[u8], position: PagePosition) -> Decoded<Index> {
        let mut reader = ByteReader::new(bytes);
        let index = Self::decode_within(&mut reader, position, IndexLimits::MAX)?;
        reader.finish()?;
        Ok(index)
    }

    /// Decodes an index within the given limits, which other content may follow.
    pub(super) fn decode_within(
        reader: &mut ByteReader<'_>,
        position: PagePosition,
        limits: IndexLimits,
    ) -> Decoded<Index> {
        let prefix = reader.string()?.into();
        let blocks = reader.varint()?;
        // Each block takes at least two bytes.
        if blocks > reader.remaining() as u64 / 2 || blocks > limits.blocks {
            return Err(reader.error(format!("{blocks} blocks do not fit in {} bytes", reader.remaining())));
        }
        let blocks = blocks as usize;
        let mut offsets = Vec::with_capacity(blocks + 1);
        let mut separator_ends: Vec<u32> = Vec::with_capacity(blocks);
        let (mut separators, mut continued) = (Vec::new(), Vec::new());
        let mut offset = position.start;
        offsets.push(offset);
        for block in 0..blocks {
            let packed = reader.varint()?;
            let separator = reader.string()?;
            let last_start = if block < 2 { 0 } else { separator_ends[block - 2] as usize };
            let ascends = match block {
                0 => separator.is_empty() && packed & 1 == 0,
                _ if packed & 1 != 0 => separators[last_start..] <= *separator,
                _ => separators[last_start..] < *separator,
            };
            let Some(end) = offset.checked_add(packed >> 1).filter(|_| ascends) else {
                return Err(reader.error(format!("block {block} is out of order")));
            };
            offset = end;
            separators.extend_from_slice(separator);
            let separators_end = u32::try_from(separators.len()).ok();
            let Some(separators_end) = separators_end.filter(|end| u64::from(*end) <= limits.separator_bytes)
            else {
                return Err(reader.error("the separators exceed the maximum"));
            };
            if packed & 1 != 0 {
                continued.push(block as u32);
            }
            separator_ends.push(separators_end);
            offsets.push(offset);
        }
        let tree = Tree::of(blocks, |block| suffix_of(&separators, &separator_ends, block));
        separators.shrink_to_fit();
        Ok(Index {
            prefix,
            position,
            nodes: tree.nodes.into_boxed_slice(),
            skipped: tree.skipped.into_boxed_slice(),
            layers: tree.layers,
            top_stride: tree.top_stride,
            blocks,
            offsets: offsets.into_boxed_slice(),
            separators,
            separator_ends: separator_ends.into_boxed_slice(),
            continued: continued.into_boxed_slice(),
            simd: Simd::detect(),
        })
    }

    pub(super) fn simd(&self) -> Simd {
        self.simd
    }

    /// Bytes of memory used.
    pub(super) fn size_bytes(&self) -> usize {
        let PagePosition { before, after, .. } = &self.position;
        let edges = before.separator.len() + after.as_ref().map_or(0, |edge| edge.separator.len());
        self.prefix.len()
            + edges
            + size_of_val(&*self.nodes)
            + size_of_val(&*self.skipped)
            + size_of_val(&*self.offsets)
            + size_of_val(&*self.separator_ends)
            + self.separators.len()
            + size_of_val(&*self.continued)
            + size_of_val(&*self.layers)
    }

    /// Number of its first block.
    #[inline(always)]
    pub(super) fn first(&self) -> usize {
        self.position.first
    }

    /// Returns the numbers of its blocks.
    pub(super) fn range(&self) -> Range<usize> {
        self.position.first..self.position.first + self.blocks
    }

    /// Returns whether only blocks of the index may hold `key`.
    pub(super) fn covers(&self, key: &[u8]) -> bool {
        let PagePosition { first, before, after, .. } = &self.position;
        (*first == 0 || *before.separator < *key) && after.as_ref().is_none_or(|edge| *key < *edge.separator)
    }

    /// Returns whether the separators lie between those before and after the index.
    pub(super) fn fits_its_edges(&self) -> bool {
        let PagePosition { first, before, after, .. } = &self.position;
        let key = |block: usize| self.separator(block).map(|parts| parts.concat());
        let second = key(first + 1).filter(|_| self.blocks > 1);
        let ascends = |low: &[u8], high: &[u8], continues| low < high || (continues && low == high);
        let rises =
            second.is_none_or(|second| ascends(&before.separator, &second, self.continues(first + 1)));
        let last = key((first + self.blocks).saturating_sub(1)).unwrap_or_default();
        rises && after.as_ref().is_none_or(|after| ascends(&last, &after.separator, after.continues))
    }

    /// Returns the position of a block in the file.
    pub(super) fn extent(&self, block: usize) -> Range<u64> {
        let at = block - self.position.first;
        self.offsets[at]..self.offsets[at + 1]
    }

    /// Returns the end of the last block.
    pub(super) fn blocks_end(&self) -> u64 {
        *self.offsets.last().expect("offsets start with one")
    }

    /// Returns whether the first key of the block equals the last key of the preceding block. The block is
    /// one of the index, or the next one after them. False if the table has no such block.
    #[inline]
    pub(super) fn continues(&self, block: usize) -> bool {
        let at = block - self.position.first;
        match &self.position.after {
            _ if at == 0 => self.position.before.continues,
            Some(after) if at == self.blocks => after.continues,
            _ => self.is_continued(at),
        }
    }

    #[inline]
    fn is_continued(&self, at: usize) -> bool {
        !self.continued.is_empty() && self.continued.binary_search(&(at as u32)).is_ok()
    }

    /// Returns the two parts of the separator of a block. The block is one of the index, or the next one
    /// after them. `None` if the table has no such block.
    pub(super) fn separator(&self, block: usize) -> Option<[&[u8]; 2]> {
        match block - self.position.first {
            0 if self.blocks > 0 => Some([&self.position.before.separator, &[]]),
            at if at < self.blocks => Some([&self.prefix, self.suffix(at)]),
            _ => self.position.after.as_ref().map(|after| [&*after.separator, &[]]),
        }
    }

    fn suffix(&self, at: usize) -> &[u8] {
        suffix_of(&self.separators, &self.separator_ends, at)
    }

    /// Returns the first block that may hold `key`: the last one whose separator is not larger. Returns the
    /// first number for an index without blocks.
    #[inline]
    pub(super) fn find(&self, key: &[u8]) -> usize {
        self.position.first + self.rank_of(key)
    }

    #[inline(always)]
    fn rank_of(&self, key: &[u8]) -> usize {
        let Some(wanted) = key.strip_prefix(&*self.prefix) else {
            return if *key < *self.prefix { 0 } else { self.blocks.saturating_sub(1) };
        };
        let head = head8(wanted);
        // The position in a layer is the number of a node in the layer below. The first separator of each
        // node reached is not larger than the key (the very first separator is empty), so the rank is at
        // least 1.
        let (mut at, mut stride) = (0, self.top_stride);
        for &(first_node, len) in &self.layers {
            let node = NodePosition { number: first_node + at, first: at * NODE * stride, stride };
            let rank = self.rank(&node, (len - at * NODE).min(NODE), wanted, head);
            at = at * NODE + rank - 1;
            stride /= NODE;
        }
        while self.is_continued(at) && self.suffix(at) == wanted {
            at -= 1;
        }
        at
    }

    /// Returns how many separators of a node are not larger than `wanted`, which is true of the first. `head`
    /// is the head of `wanted`.
    #[inline(always)]
    fn rank(&self, node: &NodePosition, count: usize, wanted: &[u8], mut head: u64) -> usize {
        let skipped = self.skipped.get(node.number).map_or(0, |len| *len as usize);
        if skipped > 0 {
            let shared = &self.suffix(node.block(1))[..skipped];
            match wanted.strip_prefix(shared) {
                Some(rest) => head = head8(rest),
                None => return if wanted < shared { 1 } else { count },
            }
        }
        let heads = &self.nodes[node.number].0;
        let mut rank = self.simd.node_rank(heads, head).clamp(1, count);
        while heads[rank - 1] == head && rank > 1 && self.suffix(node.block(rank - 1)) > wanted {
            rank -= 1;
        }
        rank
    }
}

/// Returns the separator of a block without the prefix of the table.
#[inline]
fn suffix_of<'a>(separators: &'a [u8], ends: &[u32], block: usize) -> &'a [u8] {
    let start = if block == 0 { 0 } else { ends[block - 1] as usize };
    &separators[start..ends[block] as usize]
}

/// A node of the tree.
struct NodePosition {
    number: usize,
    /// The block of its first separator, and the number of blocks between its separators.
    first: usize,
    stride: usize,
}

impl NodePosition {
    #[inline(always)]
    fn block(&self, slot: usize) -> usize {
        self.first + slot * self.stride
    }
}

/// The tree over the separators.
#[derive(Default)]
struct Tree {
    nodes: Vec<Node>,
    /// Omitted prefix length of each node; empty if all are zero.
    skipped: Vec<u32>,
    layers: Vec<(usize, usize)>,
    top_stride: usize,
}

impl Tree {
    fn of<'a>(blocks: usize, separator: impl Fn(usize) -> &'a [u8]) -> Self {
        let mut all = Tree { top_stride: 1, ..Tree::default() };
        let (mut len, mut stride) = (blocks, 1);
        while len > 0 {
            all.layers.push((all.nodes.len(), len));
            for first in (0..len).step_by(NODE) {
                let separators = (first..len.min(first + NODE)).map(|i| separator(i * stride));
                all.push(separators);
            }
            all.top_stride = stride;
            if len <= NODE {
                break;
            }
            (len, stride) = (len.div_ceil(NODE), stride * NODE);
        }
        if all.skipped.iter().all(|len| *len == 0) {
            all.skipped.clear();
        }
        all.layers.reverse();
        all
    }

    /// Adds a node for these separators.
    fn push<'a>(&mut self, separators: impl Iterator<Item = &'a [u8]> + Clone) {
        let (second, last) = (separators.clone().nth(1), separators.clone().last());
        let skipped = match (second, last) {
            // With a shorter common prefix, heads distinguish the separators well enough.
            (Some(second), Some(last)) if (head8(second) ^ head8(last)).leading_zeros() >= u64::BITS / 2 => {
                common_prefix_len(second, last)
            }
            _ => 0,
        };
        let mut node = Node([u64::MAX; NODE]);
        for (slot, separator) in separators.enumerate() {
            let is_above_none = slot == 0 && skipped > 0;
            node.0[slot] = if is_above_none { 0 } else { head8(&separator[skipped..]) };
        }
        self.nodes.push(node);
        self.skipped.push(skipped as u32);
    }
}

impl std::fmt::Debug for Index {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Index({} blocks, {} bytes)", self.blocks, self.size_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(prefix: &[u8], separators: &[(&[u8], bool)]) -> Index {
        let entry = |&(s, continues): &(&[u8], bool)| IndexEntry {
            stored_len: 10,
            separator: [prefix, s].concat(),
            continues,
        };
        let entries: Vec<_> = separators.iter().map(entry).collect();
        let mut bytes = Vec::new();
        encode(prefix, &entries, &mut bytes);
        Index::decode(&bytes, PagePosition::default()).unwrap()
    }

    #[test]
    fn index_3_a_continued_key_is_found_where_it_starts() {
        let index = index(b"p", &[(b"", false), (b"d", false), (b"h", true), (b"h", true), (b"k", false)]);
        let find = |key: &[u8]| index.find(key);
        assert_eq!([find(b""), find(b"a"), find(b"p"), find(b"pa"), find(b"pd")], [0, 0, 0, 0, 1]);
        assert_eq!([find(b"ph"), find(b"ph\0"), find(b"pj"), find(b"pk"), find(b"q")], [1, 3, 3, 4, 4]);
        assert_eq!(index.extent(2), 20..30);
        assert_eq!(index.blocks_end(), 50);
    }

    #[test]
    fn random_separators_agree_with_a_list() {
        let mut rng = fastrand::Rng::with_seed(1);
        for round in 0..200 {
            let shared = [vec![7; [0, 3, 9][round % 3]], vec![7; [0, 20, 5][round % 3]]];
            let top = [255, 3, 1][round / 3 % 3];
            let random = |rng: &mut fastrand::Rng| {
                let mut key = shared[usize::from(round % 5 > 2 && rng.bool())].clone();
                key.extend(vec![rng.u8(..3); [0, 12][round % 2]]);
                key.extend((0..rng.usize(1..12)).map(|_| rng.u8(..=top)));
                key
            };
            let mut keys: Vec<_> = (0..rng.usize(..600)).map(|_| random(&mut rng)).collect();
            keys.push(Vec::new());
            keys.sort();
            keys.dedup();
            let list: Vec<_> = keys.iter().map(|k| (&k[..], false)).collect();
            let index = index(b"", &list);
            for _ in 0..300 {
                let probe = if rng.bool() { random(&mut rng) } else { keys[rng.usize(..keys.len())].clone() };
                assert_eq!(index.find(&probe), keys.partition_point(|k| *k <= probe) - 1);
            }
            assert_eq!(index.find(&[255; 20]), keys.len() - 1);
        }
    }

    #[test]
    fn an_index_beyond_the_limits_is_refused() {
        let entry = |s: &[u8]| IndexEntry { stored_len: 10, separator: s.to_vec(), continues: false };
        let mut bytes = Vec::new();
        encode(b"p", &[entry(b""), entry(b"pb"), entry(b"pcd")], &mut bytes);
        let decodes = |blocks, separator_bytes| {
            let limits = IndexLimits { blocks, separator_bytes };
            Index::decode_within(&mut ByteReader::new(&bytes), PagePosition::default(), limits).is_ok()
        };
        assert!(decodes(3, 3) && decodes(u64::MAX, u64::MAX));
        assert!(!decodes(2, 3) && !decodes(3, 2));
        let max = IndexLimits::MAX;
        assert!(max.holds(0xFFFF_FFFE, 0xFFFF_FFFF) && !max.holds(0xFFFF_FFFF, 0) && !max.holds(0, 1 << 32));
    }

    #[test]
    fn disorder_is_refused() {
        let mut bytes = Vec::new();
        let entry = |s: &[u8]| IndexEntry { stored_len: 10, separator: s.to_vec(), continues: false };
        encode(b"", &[entry(b""), entry(b"b"), entry(b"b")], &mut bytes);
        assert!(Index::decode(&bytes, PagePosition::default()).unwrap_err().detail.contains("block 2"));
        for len in 0..bytes.len() {
            assert!(Index::decode(&bytes[..len], PagePosition::default()).is_err());
        }
        assert_eq!(Index::decode(&[0, 0], PagePosition::default()).unwrap().find(b"x"), 0);
    }
}
