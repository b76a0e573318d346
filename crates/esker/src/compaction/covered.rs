//! Finds covered tables: a newer range tombstone hides all of their data from all readers, so they are
//! dropped unread. Pure policy: no I/O, no locks.
//!
//! ```text
//!   memtable  [a-----------------m)@90                  horizons 20        visible = 95
//!   L0                  7[c--f] 60..80                  7: in one stripe with @90 --> dropped
//!   base      1[a--c] 15..18   2[d-------p] 30..40      1: a reader at 20 sees it; 2: ends after @90
//! ```
//!
//! covered.1. A table is dropped only if tombstones of newer sources cover its whole range, each newer than
//!     everything in the table and in the same stripe (compaction/judge.rs) as all its numbers. So no reader
//!     can distinguish the two. The table's own tombstones lie in its range, and what they hide is older
//!     still, so the same tombstones hide it.
//! - What covers a table is in a source that stays, or in one itself covered by a source that stays.
//!
//! covered.3. Memtables, including the active one, cover tables, too. Before a table is dropped because of
//!     one, the log is made durable.
//! - A table with unresolved versions (types/op.rs) is kept until a compaction has resolved them. A table
//!   below unresolved versions is kept, because it resolves them.
//! - A table with keys of a keyspace under a history rule (rules.rs) is dropped only if no reader that the
//!   rule allows can distinguish it. Under a rule that keeps a number of versions it is never dropped.

use std::sync::Arc;

use super::judge::Horizons;
use super::rules::{Rule, Rules};
use crate::manifest::history::Floors;
use crate::manifest::version::{LiveTable, Run, Version};
use crate::types::key_range::{End, KeyRange};
use crate::types::range_tombstone::RangeTombstones;
use crate::types::{FileId, SeqNo};

/// Returns the covered tables of a version under the tombstones of these memtables, and the floors of history
/// that dropping them raises. `tombstones_of` returns the tombstones of a table. `is_waiting` returns whether
/// memtables hold unresolved versions in a range.
pub(crate) fn covered<'a, T>(
    version: &'a Version<T>,
    memtables: &[Arc<RangeTombstones>],
    tombstones_of: impl Fn(&'a LiveTable<T>) -> &'a RangeTombstones,
    is_waiting: impl Fn(&KeyRange) -> bool,
    horizons: &Horizons,
    rules: &Rules,
) -> (Vec<FileId>, Floors) {
    let (mut out, mut floors) = (Vec::new(), Floors::default());
    // Runs above that hold range tombstones, and runs above that hold unresolved versions.
    let (mut above, mut unresolved): (Vec<&Run<T>>, Vec<&Run<T>>) = Default::default();
    let is_asked_for = |range: &KeyRange, unresolved: &[&Run<T>]| {
        let mut tables = unresolved.iter().flat_map(|run| run.overlapping(range));
        tables.any(|table| table.meta.counts.unresolved > 0) || is_waiting(range)
    };
    for run in version.runs() {
        if !memtables.is_empty() || !above.is_empty() {
            for table in run.tables() {
                let mut covers: Vec<_> = memtables.iter().map(|set| &**set).collect();
                for run in &above {
                    let overlapping = run.overlapping(&table.meta.range);
                    let holding = overlapping.iter().filter(|t| t.meta.counts.range_tombstones > 0);
                    covers.extend(holding.map(|t| tombstones_of(t)));
                }
                let covered = is_covered(table, &covers, horizons)
                    && is_covered_by_rules(table, &covers, horizons, rules)
                    && !is_asked_for(&table.meta.range, &unresolved);
                if covered {
                    out.push(table.file);
                    // A reader that sees the tombstones does not miss the table.
                    let newest = covers.iter().map(|set| set.max_seq()).max().unwrap_or_default();
                    for ruled in rules.overlapping(&table.meta.range) {
                        let Rule::From(from) = ruled.rule else { continue };
                        floors.raise(ruled.id, newest.min(from));
                    }
                }
            }
        }
        if run.has_range_tombstones() {
            above.push(run);
        }
        if run.tables().iter().any(|table| table.meta.counts.unresolved > 0) {
            unresolved.push(run);
        }
    }
    (out, floors)
}

/// Returns whether a table is covered for all readers that history rules allow.
fn is_covered_by_rules<T>(
    table: &LiveTable<T>,
    covers: &[&RangeTombstones],
    horizons: &Horizons,
    rules: &Rules,
) -> bool {
    rules.overlapping(&table.meta.range).all(|ruled| match ruled.rule {
        Rule::Versions(_) => false,
        Rule::From(from) => is_covered(table, covers, &horizons.with_all_from(from)),
    })
}

/// Returns whether these tombstones hide all of a table from a reader at `visible`. It can be dropped once no
/// snapshot prevents it.
pub(crate) fn is_hidden<T>(table: &LiveTable<T>, tombstones: &RangeTombstones, visible: SeqNo) -> bool {
    is_covered(table, &[tombstones], &Horizons::new(vec![visible]))
}

/// Returns whether tombstones cover a table (covered.1).
fn is_covered<T>(table: &LiveTable<T>, covers: &[&RangeTombstones], horizons: &Horizons) -> bool {
    let (range, counts) = (&table.meta.range, &table.meta.counts);
    let stripe_end = horizons.stripe_end(counts.min_seq);
    if stripe_end <= counts.max_seq || counts.unresolved > 0 {
        return false;
    }
    let mut reached = range.start.as_slice();
    loop {
        let ends = covers.iter().filter_map(|set| set.covered_to(reached, stripe_end, counts.max_seq.next()));
        let Some(end) = ends.max() else { return false };
        let is_past = match &range.end {
            End::Included(last) => **end > **last,
            End::Excluded(border) => **end >= **border,
        };
        if is_past {
            return true;
        }
        reached = &**end;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::super::picker::tests::parse_version;
    use super::*;
    use crate::manifest::edit::{AddedTable, VersionEdit};
    use crate::types::KeyspaceId;
    use crate::types::range_tombstone::RangeTombstone;

    /// `[a-m)@90`, several separated by spaces.
    fn parse_tombstones<'a>(words: impl Iterator<Item = &'a str>) -> RangeTombstones {
        RangeTombstones::new(words.map(|word| {
            let (range, seq) = word.split_once(")@").unwrap();
            let (start, end) = range[1..].split_once('-').unwrap();
            RangeTombstone { start: start.into(), end: end.into(), seq: SeqNo::new(seq.parse().unwrap()) }
        }))
    }

    /// Sets the smallest and largest numbers of tables: `2=30..40`. The tables in `tombs` have range
    /// tombstones.
    fn with_seqs(
        version: &Version<()>,
        seqs: &str,
        tombs: &HashMap<FileId, RangeTombstones>,
        unresolved: &[&str],
    ) -> Version<()> {
        let of = |text: &str| SeqNo::new(text.parse().unwrap());
        let seqs: HashMap<_, _> = seqs.split_whitespace().map(|word| word.split_once('=').unwrap()).collect();
        let added = version.tables().map(|(run, table)| {
            let mut meta = table.meta.clone();
            if let Some((min, max)) = seqs.get(&*table.file.to_string()).map(|s| s.split_once("..").unwrap())
            {
                (meta.counts.min_seq, meta.counts.max_seq) = (of(min), of(max));
            }
            meta.counts.unresolved = u64::from(unresolved.contains(&&*table.file.to_string()));
            meta.counts.range_tombstones = u64::from(tombs.contains_key(&table.file));
            AddedTable { file: table.file, level: run.level, run: run.id, meta }
        });
        let edit = VersionEdit { added: added.collect(), ..VersionEdit::default() };
        let opened = edit.added.iter().map(|a| (a.file, ())).collect();
        Version::empty().apply(&edit, opened)
    }

    /// `7?` is a table that holds unresolved versions, `c?` a key with one in a memtable. Runs a table of
    /// lines: a version, its numbers, then `memtable and tables' tombstones | horizons -> files`. Words of
    /// tables begin with the file: `7[a-m)@90`.
    fn check(text: &str) {
        check_under(&Rules::default(), text);
    }

    fn check_under(rules: &Rules, text: &str) {
        let lines: Vec<_> = text.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
        let (shape, seqs) = (parse_version(lines[0]), lines[1]);
        for line in &lines[2..] {
            let (given, expected) = line.split_once(" -> ").unwrap();
            let (words, horizons) = given.split_once('|').unwrap();
            let (unresolved, words): (Vec<_>, Vec<_>) =
                words.split_whitespace().partition(|word| word.ends_with('?'));
            let unresolved: Vec<&str> = unresolved.iter().map(|word| word.trim_end_matches('?')).collect();
            let waiting: Vec<&[u8]> =
                unresolved.iter().filter(|word| word.parse::<u64>().is_err()).map(|w| w.as_bytes()).collect();
            let (memtable, tables): (Vec<&str>, Vec<&str>) =
                words.into_iter().partition(|word| word.starts_with('['));
            let horizons = horizons.split_whitespace().map(|h| SeqNo::new(h.parse().unwrap())).collect();
            let mut tombs: HashMap<FileId, RangeTombstones> = HashMap::new();
            for word in tables {
                let (file, word) = word.split_at(word.find('[').unwrap());
                tombs.insert(FileId::new(file.parse().unwrap()), parse_tombstones([word].into_iter()));
            }
            let version = with_seqs(&shape, seqs, &tombs, &unresolved);
            let memtables: Vec<_> =
                memtable.iter().map(|word| Arc::new(parse_tombstones([*word].into_iter()))).collect();
            let found = {
                let tombstones_of = |table: &LiveTable<()>| &tombs[&table.file];
                let is_waiting = |range: &KeyRange| waiting.iter().any(|key| range.contains(key));
                let horizons = Horizons::new(horizons);
                covered(&version, &memtables, tombstones_of, is_waiting, &horizons, rules).0
            };
            let mut found: Vec<_> = found.iter().map(FileId::to_string).collect();
            found.sort();
            let found = if found.is_empty() { "none".to_owned() } else { found.join(" ") };
            assert_eq!(found, expected, "covered.1: {line}");
        }
    }

    #[test]
    fn covered_1_covered_2_tables_wholly_under_a_tombstone_that_no_reader_tells_from_them() {
        check(
            "
            L0: 9[c-f] / 8[a-q]  base: 1[a-c] 2[d-p]
            9=60..80 8=50..55 1=0..0 2=30..40
            [a-z)@90                   | 95    -> 1 2 8 9
            [a-c)@90                   | 95    -> none
            [a-ca)@90                  | 95    -> 1
            [a-ca)@90                  | 20 95 -> none
            [d-pa)@90                  | 20 95 -> 2
            [a-z)@90                   | 35 95 -> 8 9
            [a-z)@90                   | 40 95 -> 8 9
            [a-z)@90                   | 57 95 -> 9
            [a-z)@90                   | 89 95 -> none
            [a-z)@90                   | 90 95 -> 1 2 8 9
            [a-z)@90                   | 85    -> none
            [a-z)@79                   | 95    -> 1 2 8
            [a-z)@80                   | 95    -> 1 2 8
            [a-z)@81                   | 95    -> 1 2 8 9
            [a-h)@90 [h-z)@91          | 95    -> 1 2 8 9
            [a-h)@90 [i-z)@91          | 95    -> 1 9
            [a-k)@90 [h-z)@91          | 95    -> 1 2 8 9
            [a-h)@90 8[h-q)@55         | 95    -> 1 2 9
            8[a-q)@54                  | 95    -> 1 2
            9[c-f)@70                  | 95    -> none
            [a-z)@90 9?                | 95    -> none
            [a-z)@90 8?                | 95    -> 9
            [a-z)@90 2?                | 95    -> 1 8 9
            [a-z)@90 b?                | 95    -> 2 9
            ",
        );
    }

    #[test]
    fn what_a_rule_keeps_for_readers_to_come_stays() {
        let under = |rule| Rules::new([(KeyspaceId::new(b'd'.into()), rule)]);
        let text = |newest: &str, expected: &str| {
            format!(
                "
                L0: 9[c-f] / 8[a-q]  base: 1[a-c] 2[d-p]
                9=60..80 8=50..55 1=0..0 2=30..40
                [a-z)@{newest} | 95 -> {expected}
                "
            )
        };
        check_under(&under(Rule::From(SeqNo::new(92))), &text("90", "1 2 8 9"));
        check_under(&under(Rule::From(SeqNo::new(85))), &text("90", "1"));
        check_under(&under(Rule::From(SeqNo::new(70))), &text("65", "1 2 8"));
        check_under(&under(Rule::From(SeqNo::new(57))), &text("65", "1"));
        check_under(&under(Rule::Versions(1)), &text("90", "1"));
    }
}
