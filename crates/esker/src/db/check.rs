//! `check`: reads everything and compares it with what it should be.

use super::core::Core;
use crate::types::Result;
use crate::types::key::decode_key;

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckReport {
    /// Tables read.
    pub tables: u64,
    /// Blocks read.
    pub blocks: u64,
    /// Versions of keys in the tables.
    pub entries: u64,
    /// Bytes of all tables.
    pub bytes: u64,
    /// Live keys over all keyspaces, counted one by one.
    pub live_keys: u64,
    /// What is wrong, each with file and offset where there is one. Empty: the database is sound.
    pub problems: Vec<String>,
}

impl Core {
    /// Verifies every block of every table (checksums, order, counts, bounds, filters), that every key belongs to
    /// a keyspace, and that the live keys of each keyspace are as many as `len` says.
    pub(crate) fn check(&self) -> Result<CheckReport> {
        self.check_open()?;
        let mut report = CheckReport::default();
        let snapshot = self.published.snapshot();
        let view = self.view.get();
        for (run, live) in view.version.tables() {
            report.tables += 1;
            report.bytes += live.meta.file_bytes;
            match live.table.verify() {
                Ok(found) => {
                    report.blocks += found.blocks;
                    report.entries += found.entries;
                    if found.entries != live.meta.entries {
                        let (file, said) = (live.file, live.meta.entries);
                        report.problems.push(format!(
                            "table {file} of level {} holds {} entries; the manifest says {said}",
                            run.level.get(),
                            found.entries
                        ));
                    }
                }
                Err(error) => report.problems.push(error.to_string()),
            }
        }
        self.check_counts(&snapshot, &mut report);
        Ok(report)
    }

    fn check_counts(&self, snapshot: &crate::txn::snapshots::SnapshotGuard, report: &mut CheckReport) {
        for name in self.catalog.names() {
            let Some(keyspace) = self.catalog.get(&name) else { continue };
            let said = keyspace.counter.at(snapshot.seq());
            match self.count_keys(&keyspace, snapshot) {
                Ok(counted) => {
                    report.live_keys += counted;
                    if counted != said {
                        report
                            .problems
                            .push(format!("keyspace {name:?} holds {counted} keys; its length says {said}"));
                    }
                }
                Err(error) => report.problems.push(format!("keyspace {name:?}: {error}")),
            }
        }
        let stray = |table: &std::sync::Arc<crate::sstable::Table>| {
            let range = &table.properties().range;
            [&range.start[..], range.end.key()].into_iter().any(|key| decode_key(key).is_none())
        };
        let view = self.view.get();
        for (_, live) in view.version.tables().filter(|(_, live)| stray(&live.table)) {
            report.problems.push(format!("table {} holds keys of no keyspace", live.file));
        }
    }

    fn count_keys(
        &self,
        keyspace: &super::catalog::KeyspaceState,
        snapshot: &crate::txn::snapshots::SnapshotGuard,
    ) -> Result<u64> {
        let source = self.source_at(keyspace, snapshot);
        let bounds = super::write::encode_bounds::<&[u8]>(keyspace.id, &(..));
        let mut counted = 0;
        for key in super::range::Range::from_result(source, bounds).keys() {
            key?;
            counted += 1;
        }
        Ok(counted)
    }
}
