//! Private tables: writes of a transaction, sorted into a run that no other thread sees until it is adopted.
//!
//! ```text
//!   layers, newest first: pieces, runs --MergeScan--> Judge --> Output: entries, tombstones of number 0
//! ```
//!
//! Of each key the newest layer's operation is kept; a range tombstone hides keys of older layers. Tombstones
//! are kept, because they apply to committed data.
//!
//! As for any output: the tables and their names are durable when `write_private` returns, and after an error
//! none of its files is left.

use super::execute::{Built, CompactionStats, Context};
use super::judge::{Horizons, Judge, Verdict};
use super::merge::{MergeScan, Source};
use super::operands::Gather;
use super::output::{Output, OutputContext, Shape, Written};
use crate::manifest::level::{Level, RunId};
use crate::types::entry::EntryRef;
use crate::types::key::decode_key;
use crate::types::range_tombstone::{Fragment, RangeTombstones, Seqs};
use crate::types::{KeyspaceId, Result, SeqNo};

/// A run of private tables.
pub(crate) struct PrivateBuilt {
    /// Its tables.
    pub built: Built,
    /// Number of live entries per keyspace.
    pub puts: Vec<(KeyspaceId, i64)>,
    /// Whether any entry is an operand.
    pub has_operands: bool,
}

/// Writes layers, newest first, as one run. Each layer's entries and range tombstones have a sequence number
/// of their own, larger for newer layers. `keep_warm` puts the blocks into the cache for readers that follow
/// soon.
pub(crate) fn write_private(
    context: &Context<'_>,
    layers: impl IntoIterator<Item = Source>,
    removed: RangeTombstones,
    keep_warm: bool,
) -> Result<PrivateBuilt> {
    // No reader stands between two layers, and committed data lies below.
    let mut judge = Judge::new(Horizons::new(vec![SeqNo::MAX]), removed, false);
    let shape = private_shape(context.table_bytes);
    let output_context = OutputContext { keeps_warm: keep_warm, ..context.output_context() };
    let survivors = judge.surviving_tombstones();
    let mut output = Output::new(output_context, shape, &unnumbered(&survivors));
    let written = write_to(context, layers, &mut judge, &mut output);
    if written.is_err() {
        output.discard();
    }
    written
}

/// Returns the output shape of private tables, which belong to no level until they are adopted.
pub(crate) fn private_shape(table_bytes: u64) -> Shape {
    Shape { level: Level::L0, run: RunId(0), table_bytes, fences: Vec::new(), newest_commit: SeqNo::ZERO }
}

fn write_to(
    context: &Context<'_>,
    layers: impl IntoIterator<Item = Source>,
    judge: &mut Judge,
    output: &mut Output<'_>,
) -> Result<PrivateBuilt> {
    let (mut stats, mut puts, mut has_operands) = (CompactionStats::default(), Puts::default(), false);
    let mut scan = MergeScan::new(layers)?;
    let mut gather = Gather::strict(context.fold_context());
    let mut write = |entry: EntryRef<'_>, _| {
        puts.add(&entry);
        has_operands |= entry.kind.is_operand();
        output.add(EntryRef { seq: SeqNo::ZERO, ..entry })
    };
    while let Some(entry) = scan.next()? {
        let verdict = judge.judge(entry, &mut stats);
        assert!(verdict != Verdict::Wait, "a transaction's own writes are counted when it commits");
        gather.take(entry, verdict, judge, &mut write)?;
    }
    gather.finish(judge, &mut write)?;
    let Written { added, opened } = output.finish()?;
    let built = Built { added, opened, ..Built::default() };
    Ok(PrivateBuilt { built, puts: puts.per_keyspace, has_operands })
}

/// Returns the same ranges with sequence number 0.
fn unnumbered(removed: &RangeTombstones) -> RangeTombstones {
    let unnumbered = |fragment: &Fragment| Fragment { seqs: Seqs::one(SeqNo::ZERO), ..fragment.clone() };
    RangeTombstones::from_sorted(removed.fragments().map(unnumbered).collect())
}

/// Counts live entries per keyspace. Entries come in key order.
#[derive(Default)]
struct Puts {
    per_keyspace: Vec<(KeyspaceId, i64)>,
    /// Prefix of the keys of the last keyspace.
    prefix: Vec<u8>,
}

impl Puts {
    #[inline]
    fn add(&mut self, entry: &EntryRef<'_>) {
        if self.prefix.is_empty() || !entry.key.starts_with(&self.prefix) {
            let (keyspace, user_key) = decode_key(entry.key).expect("writes have encoded keys");
            self.prefix = entry.key[..entry.key.len() - user_key.len()].to_vec();
            self.per_keyspace.push((keyspace, 0));
        }
        if let Some(last) = self.per_keyspace.last_mut() {
            last.1 += i64::from(entry.kind.is_live());
        }
    }
}
