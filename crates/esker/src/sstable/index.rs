//! The index of a table: which block may hold a key.
//!
//! ```text
//!   key --table prefix--> head, 8 bytes --layers of nodes of 16 heads--> block --equal heads--> full separators
//!
//!   blocks:       [a ... c] [f ... h] [h ... k]        separators:  "" | "d" | "h", continues
//! ```
//!
//! index.1. The separator of a block is above every key of the block before it (or equal to its last key, if the
//!      block continues the versions of that key), and not above the block's own first key. The first one is empty.
//! index.2. All keys and separators of a table share the table's prefix, which is stored once.
//! index.3. `find` returns the first block that may hold the key, so that a search meets a key's newest version first.
//! index.4. Blocks lie back to back from the file's start, so that offsets are sums of lengths.
//! index.5. The reader counts blocks, and bytes of separators, in 32 bits: no more of them are written, and more are refused.
//!
//! The tree is static, as in the "static search trees" of Slotin (en.algorithmica.org/hpc) and of Groot Koerkamp:
//! each layer holds every 16th head of the layer below; ranks in a node are counted without branches.
//! Bytes: docs/formats/sstable.md

use super::block_search::{NODE, Simd};
use crate::encoding::bytes::{ByteReader, Decoded, put_string, put_varint};
use crate::types::key::{common_prefix_len, head8};

/// The shortest key above `low` and not above `high`; `low < high`.
pub(super) fn shortest_separator<'a>(low: &[u8], high: &'a [u8]) -> &'a [u8] {
    &high[..(common_prefix_len(low, high) + 1).min(high.len())]
}

/// How much one index can hold (index.5).
#[derive(Clone, Copy, Debug)]
pub(crate) struct IndexRoom {
    /// Blocks.
    pub blocks: u64,
    /// Bytes of separators; the table's prefix may count in each of them.
    pub separator_bytes: u64,
}

impl IndexRoom {
    /// That of the format.
    pub(crate) const MAX: IndexRoom =
        IndexRoom { blocks: u32::MAX as u64 - 1, separator_bytes: u32::MAX as u64 };

    /// Whether there is room for so much.
    pub(super) fn holds(&self, blocks: u64, separator_bytes: u64) -> bool {
        blocks <= self.blocks && separator_bytes <= self.separator_bytes
    }
}

/// What the writer knows of a block.
pub(super) struct IndexEntry {
    pub stored_len: u64,
    pub separator: Vec<u8>,
    pub continues: bool,
}

/// The stored form of the index. `prefix` is a prefix of all separators but the first (index.2).
pub(super) fn encode(prefix: &[u8], entries: &[IndexEntry], out: &mut Vec<u8>) {
    put_string(out, prefix);
    put_varint(out, entries.len() as u64);
    for entry in entries {
        put_varint(out, entry.stored_len << 1 | u64::from(entry.continues));
        put_string(out, entry.separator.get(prefix.len()..).unwrap_or_default());
    }
}

#[repr(align(64))]
#[derive(Clone)]
struct Node([u64; NODE]);

/// The index in memory.
pub(super) struct Index {
    prefix: Vec<u8>,
    /// The layers one after another, the blocks' own heads first; unused heads of a layer's last node are MAX.
    nodes: Box<[Node]>,
    /// Each layer's first node, from the top down; then its number of heads.
    layers: Vec<(usize, usize)>,
    blocks: usize,
    /// Where each block starts in the file, and where the last ends.
    offsets: Box<[u64]>,
    separators: Vec<u8>,
    separator_ends: Box<[u32]>,
    /// Blocks whose first key is the last key of the block before, ascending.
    continued: Box<[u32]>,
    simd: Simd,
}

impl Index {
    pub(super) fn decode(bytes: &[u8]) -> Decoded<Index> {
        Self::decode_within(bytes, IndexRoom::MAX)
    }

    /// Decodes an index that may be no larger.
    pub(super) fn decode_within(bytes: &[u8], room: IndexRoom) -> Decoded<Index> {
        let mut reader = ByteReader::new(bytes);
        let prefix = reader.string()?.to_vec();
        let blocks = reader.varint()?;
        // Each block takes two bytes or more.
        if blocks > reader.remaining() as u64 / 2 || blocks > room.blocks {
            return Err(reader.error(format!("{blocks} blocks in {} bytes", reader.remaining())));
        }
        let blocks = blocks as usize;
        let mut offsets = Vec::with_capacity(blocks + 1);
        let mut separator_ends: Vec<u32> = Vec::with_capacity(blocks);
        let (mut separators, mut continued, mut heads) = (Vec::new(), Vec::new(), Vec::with_capacity(blocks));
        let mut offset = 0u64;
        offsets.push(0);
        for block in 0..blocks {
            let packed = reader.varint()?;
            let separator = reader.string()?;
            let start = separators.len();
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
            let Some(separators_end) = separators_end.filter(|end| u64::from(*end) <= room.separator_bytes)
            else {
                return Err(reader.error("separators pass 4 GiB"));
            };
            if packed & 1 != 0 {
                continued.push(block as u32);
            }
            heads.push(head8(&separators[start..]));
            separator_ends.push(separators_end);
            offsets.push(offset);
        }
        reader.finish()?;
        let (nodes, layers) = build_layers(heads);
        separators.shrink_to_fit();
        Ok(Index {
            prefix,
            nodes,
            layers,
            blocks,
            offsets: offsets.into_boxed_slice(),
            separators,
            separator_ends: separator_ends.into_boxed_slice(),
            continued: continued.into_boxed_slice(),
            simd: Simd::detect(),
        })
    }

    /// The number of blocks.
    pub(super) fn len(&self) -> usize {
        self.blocks
    }

    pub(super) fn simd(&self) -> Simd {
        self.simd
    }

    /// Bytes of memory.
    pub(super) fn size_bytes(&self) -> usize {
        size_of_val(&*self.nodes)
            + size_of_val(&*self.offsets)
            + size_of_val(&*self.separator_ends)
            + self.separators.len()
    }

    /// Where a block lies in the file.
    pub(super) fn extent(&self, block: usize) -> std::ops::Range<u64> {
        self.offsets[block]..self.offsets[block + 1]
    }

    /// Where the last block ends.
    pub(super) fn blocks_end(&self) -> u64 {
        *self.offsets.last().expect("index.4: offsets start with 0")
    }

    /// Whether the block's first key is the last key of the block before it.
    #[inline]
    pub(super) fn continues(&self, block: usize) -> bool {
        !self.continued.is_empty() && self.continued.binary_search(&(block as u32)).is_ok()
    }

    /// The table's prefix, and the block's separator without it.
    pub(super) fn separator(&self, block: usize) -> (&[u8], &[u8]) {
        (&self.prefix, self.suffix(block))
    }

    fn suffix(&self, block: usize) -> &[u8] {
        let start = if block == 0 { 0 } else { self.separator_ends[block - 1] as usize };
        &self.separators[start..self.separator_ends[block] as usize]
    }

    /// The first block that may hold `key` (index.3): the last one whose separator is not above it. Of an empty table,
    /// block 0.
    #[inline]
    pub(super) fn find(&self, key: &[u8]) -> usize {
        let Some(wanted) = key.strip_prefix(&*self.prefix) else {
            return if *key < *self.prefix { 0 } else { self.blocks.saturating_sub(1) };
        };
        let head = head8(wanted);
        // The position in a layer is the number of a node in the layer below. The layer above led to a node whose
        // first head is not above the wanted one (the very first head is 0), so the rank is at least 1.
        let mut at = 0;
        for &(first_node, len) in &self.layers {
            let rank = self.simd.node_rank(&self.nodes[first_node + at].0, head);
            at = (at * NODE + rank).min(len) - 1;
        }
        if self.layers.is_empty() || self.head(at) != head {
            at
        } else {
            self.find_among_equal_heads(at, wanted)
        }
    }

    fn head(&self, block: usize) -> u64 {
        self.nodes[block / NODE].0[block % NODE]
    }

    /// `last` is the last block whose separator has the head of `wanted`.
    #[cold]
    fn find_among_equal_heads(&self, last: usize, wanted: &[u8]) -> usize {
        let head = self.head(last);
        let bisect = |mut low: usize, mut high: usize, below: &dyn Fn(usize) -> bool| {
            while low < high {
                let middle = low + (high - low) / 2;
                if below(middle) { low = middle + 1 } else { high = middle }
            }
            low
        };
        let first = bisect(0, last + 1, &|block| self.head(block) < head);
        let after = bisect(first, last + 1, &|block| self.suffix(block) <= wanted);
        // The first separator is empty and thus below or equal: only `first` of a later block can be above.
        let mut found = after.saturating_sub(1);
        while self.continues(found) && self.suffix(found) == wanted {
            found -= 1;
        }
        found
    }
}

fn build_layers(heads: Vec<u64>) -> (Box<[Node]>, Vec<(usize, usize)>) {
    let (mut nodes, mut layers) = (Vec::new(), Vec::new());
    let mut layer = heads;
    while !layer.is_empty() {
        layers.push((nodes.len(), layer.len()));
        for chunk in layer.chunks(NODE) {
            let mut node = Node([u64::MAX; NODE]);
            node.0[..chunk.len()].copy_from_slice(chunk);
            nodes.push(node);
        }
        if layer.len() <= NODE {
            break;
        }
        layer = layer.iter().copied().step_by(NODE).collect();
    }
    layers.reverse();
    (nodes.into_boxed_slice(), layers)
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
        Index::decode(&bytes).unwrap()
    }

    #[test]
    fn separators_are_short() {
        let sep =
            |a: &str, b: &'static str| std::str::from_utf8(shortest_separator(a.as_bytes(), b.as_bytes()));
        assert_eq!(sep("abc", "abd"), Ok("abd"));
        assert_eq!(sep("abc", "xyz"), Ok("x"));
        assert_eq!(sep("a", "a\0b"), Ok("a\0"));
        assert_eq!(sep("", "b"), Ok("b"));
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
            let shared = vec![7; [0, 3, 9][round % 3]];
            let top = [255, 3, 1][round / 3 % 3];
            let random = |rng: &mut fastrand::Rng| {
                let mut key = shared.clone();
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
    fn index_5_an_index_beyond_the_limits_is_refused() {
        let entry = |s: &[u8]| IndexEntry { stored_len: 10, separator: s.to_vec(), continues: false };
        let mut bytes = Vec::new();
        encode(b"p", &[entry(b""), entry(b"pb"), entry(b"pcd")], &mut bytes);
        let decodes = |blocks, separator_bytes| {
            Index::decode_within(&bytes, IndexRoom { blocks, separator_bytes }).is_ok()
        };
        assert!(decodes(3, 3) && decodes(u64::MAX, u64::MAX));
        assert!(!decodes(2, 3) && !decodes(3, 2), "index.5");
        let max = IndexRoom::MAX;
        assert!(max.holds(0xFFFF_FFFE, 0xFFFF_FFFF) && !max.holds(0xFFFF_FFFF, 0) && !max.holds(0, 1 << 32));
    }

    #[test]
    fn disorder_is_refused() {
        let mut bytes = Vec::new();
        let entry = |s: &[u8]| IndexEntry { stored_len: 10, separator: s.to_vec(), continues: false };
        encode(b"", &[entry(b""), entry(b"b"), entry(b"b")], &mut bytes);
        assert!(Index::decode(&bytes).unwrap_err().detail.contains("block 2"));
        for len in 0..bytes.len() {
            assert!(Index::decode(&bytes[..len]).is_err());
        }
        assert_eq!(Index::decode(&[0, 0]).unwrap().find(b"x"), 0);
    }
}
