//! Updates the counters of what a run covers.

use std::collections::BTreeSet;
use std::path::Path;

use esker::{Blobs, Db};
use esker_env::{Fs, OpenOptions};

use super::{DIR, World};

/// What was there after the last operation.
#[derive(Default)]
pub(super) struct Seen {
    /// Number of tier runs.
    pub(super) tier_runs: u64,
    /// Number of large commits of the current process.
    adoptions: u64,
    /// Files that existed when the current process started.
    pub(super) inherited: Vec<String>,
    /// Blob files.
    blob_files: BTreeSet<String>,
    /// Content of `CURRENT`.
    pub(super) current: Vec<u8>,
}

impl World {
    /// Updates the counters of what this run covers.
    pub(super) fn note_coverage(&mut self) {
        let Some(stats) = self.db.as_ref().map(Db::stats) else { return };
        let tally = &mut self.tally;
        let tier_runs = std::mem::replace(&mut self.seen.tier_runs, stats.tier_runs);
        let adoptions = std::mem::replace(&mut self.seen.adoptions, stats.adoptions);
        tally.adopted += stats.adoptions.saturating_sub(adoptions);
        tally.tier_merges += u64::from(tier_runs != stats.tier_runs);
        let sightings = [
            (&mut tally.tiered, stats.tier_runs > 1),
            (&mut tally.unresolved, stats.unresolved > 0),
            (&mut tally.wide, stats.tables > stats.runs),
            (&mut tally.moved, stats.moves > 0),
            (&mut tally.recycled, stats.log_files_recycled > 0),
        ];
        sightings.into_iter().filter(|sighting| sighting.1).for_each(|(seen, _)| *seen = 1);
        self.note_manifest();
        if self.process.opening.is_some_and(|opening| opening.blobs != Blobs::Never)
            || !self.seen.blob_files.is_empty()
        {
            self.note_blobs();
        }
    }

    /// Counts replacements of the manifest. Without a failed call, the only reason is its length.
    fn note_manifest(&mut self) {
        let current = self.content("CURRENT");
        let is_well = self.process.at_birth == (self.machine.faults.fired(), self.machine.disk.refusals());
        if is_well && current != self.seen.current && !self.is_dead() {
            self.tally.rewritten = 1;
        }
        self.seen.current = current;
    }

    /// Counts the creation and removal of blob files.
    fn note_blobs(&mut self) {
        let is_blob = |name: &String| name.ends_with(".blob");
        let files: BTreeSet<_> = self.names().into_iter().filter(is_blob).collect();
        self.tally.blobs |= u64::from(!files.is_empty());
        self.tally.collected |= u64::from(!self.seen.blob_files.is_subset(&files) && !self.is_dead());
        self.seen.blob_files = files;
    }

    /// Counts the sizes of the segments of the current process.
    pub(super) fn note_log_sizes(&mut self) {
        let Some(opening) = self.process.opening else { return };
        let names = self.names();
        let own = names.iter().filter(|name| name.ends_with(".wal") && !self.seen.inherited.contains(name));
        let sizes: BTreeSet<_> = own.clone().map(|name| self.len(name)).collect();
        let max = opening.segment_bytes_max();
        self.tally.grown |= u64::from(sizes.range(..=max).count() > 1);
        self.tally.bulky |= u64::from(own.filter(|name| self.len(name) > max).count() > 1);
        self.tally.unreserved |= self.tally.bulky * u64::from(self.machine.is_plain);
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.machine.disk.list_dir(DIR.as_ref()).unwrap_or_default()
    }

    pub(super) fn content(&self, name: &str) -> Vec<u8> {
        let file = self.machine.disk.open(&Path::new(DIR).join(name), OpenOptions::read());
        let bytes = file.and_then(|file| {
            let mut bytes = vec![0; file.len()? as usize];
            file.read_exact_at(&mut bytes, 0).map(|()| bytes)
        });
        bytes.unwrap_or_default()
    }

    fn len(&self, name: &str) -> u64 {
        let file = self.machine.disk.open(&Path::new(DIR).join(name), OpenOptions::read());
        file.and_then(|file| file.len()).unwrap_or_default()
    }
}
