//! Updates counters that only the files show.

use std::collections::BTreeSet;
use std::path::Path;

use esker_env::{Fs, OpenOptions};

use super::{DIR, World};

impl World {
    /// Counts replacements of the manifest. Without a failed call, the only reason is its length.
    pub(super) fn note_manifest(&mut self) {
        let current = self.content("CURRENT");
        let is_well = self.at_birth == (self.faults.fired(), self.disk.refusals());
        if is_well && current != self.current && !self.is_dead() {
            self.tally.rewritten = 1;
        }
        self.current = current;
    }

    /// Counts the creation and removal of blob files.
    pub(super) fn note_blobs(&mut self) {
        let is_blob = |name: &String| name.ends_with(".blob");
        let files: BTreeSet<_> = self.names().into_iter().filter(is_blob).collect();
        self.tally.blobs |= u64::from(!files.is_empty());
        self.tally.collected |= u64::from(!self.blob_files.is_subset(&files) && !self.is_dead());
        self.blob_files = files;
    }

    /// Counts the sizes of the segments of the current process.
    pub(super) fn note_log_sizes(&mut self) {
        let Some(opening) = self.opening else { return };
        let names = self.names();
        let own = names.iter().filter(|name| name.ends_with(".wal") && !self.inherited.contains(name));
        let sizes: BTreeSet<_> = own.clone().map(|name| self.len(name)).collect();
        let max = opening.segment_bytes_max();
        self.tally.grown |= u64::from(sizes.range(..=max).count() > 1);
        self.tally.bulky |= u64::from(own.filter(|name| self.len(name) > max).count() > 1);
        self.tally.unreserved |= self.tally.bulky * u64::from(self.plain);
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.disk.list_dir(DIR.as_ref()).unwrap_or_default()
    }

    pub(super) fn content(&self, name: &str) -> Vec<u8> {
        let file = self.disk.open(&Path::new(DIR).join(name), OpenOptions::read());
        let bytes = file.and_then(|file| {
            let mut bytes = vec![0; file.len()? as usize];
            file.read_exact_at(&mut bytes, 0).map(|()| bytes)
        });
        bytes.unwrap_or_default()
    }

    fn len(&self, name: &str) -> u64 {
        let file = self.disk.open(&Path::new(DIR).join(name), OpenOptions::read());
        file.and_then(|file| file.len()).unwrap_or_default()
    }
}
