//! Unused files at the ends of a process: what an opening takes over, and what a close leaves or deletes.

use std::collections::VecDeque;

use super::{Numbers, WalPool};
use crate::types::Result;
use crate::wal::file_name;
use crate::wal::prepared::Prepared;

impl WalPool {
    /// Puts a file to use that this process made for the first segment, and that the manifest names.
    pub(crate) fn begin_with(&self, prepared: Prepared) {
        let mut numbers = self.numbers.lock();
        assert!(prepared.number == numbers.next, "{}, not {}", prepared.number, numbers.next);
        (numbers.next, numbers.named_to) = (prepared.number + 1, prepared.number);
        self.state.lock().newest_bytes = prepared.spare.bytes;
        numbers.prepared = Some(prepared);
    }

    /// Records that an earlier process left a file for the first segment, which the manifest names. The file
    /// is read when it is needed (pool.10).
    pub(crate) fn begin_with_left(&self, number: u64) {
        let mut numbers = self.numbers.lock();
        assert!(number == numbers.next, "{number}, not {}", numbers.next);
        (numbers.is_left, numbers.named_to) = (true, number);
    }

    /// Takes the file that an earlier process left, if there is one. A file that is not as that process made
    /// it is replaced by the next file, which gets its name.
    pub(super) fn take_left(&self, numbers: &mut Numbers) {
        if std::mem::take(&mut numbers.is_left) {
            let expected = |bytes| self.header_of(numbers.next, bytes);
            if let Some(prepared) = Prepared::left(&self.env, &self.dir, expected) {
                self.state.lock().newest_bytes = prepared.spare.bytes;
                numbers.next += 1;
                numbers.prepared = Some(prepared);
            }
        }
    }

    /// Deletes all unused files.
    pub(crate) fn trim(&self) -> Result<()> {
        self.give_back(&mut VecDeque::new())?;
        self.remove_spares()
    }

    fn remove_spares(&self) -> Result<()> {
        let spares = {
            let mut state = self.state.lock();
            state.wanted = None;
            std::mem::take(&mut state.spares)
        };
        self.remove_all(spares)
    }

    /// Deletes the unused files at a clean close, `taken` among them. If there is a single small file
    /// that the manifest names, it stays for the next process.
    pub(in crate::wal) fn end(&self, taken: &mut VecDeque<Prepared>) -> Result<()> {
        let stays = {
            let numbers = self.numbers.lock();
            let mut unused = taken.iter().chain(&numbers.prepared);
            let only = unused.next().filter(|_| unused.next().is_none());
            only.map_or(numbers.is_left, |it| {
                let is_named = it.number <= numbers.named_to;
                is_named && !it.seal.is_on() && self.options.may_leave(it.spare.bytes)
            })
        };
        let given = if stays { Ok(()) } else { self.give_back(taken) };
        given.and(self.remove_spares())
    }

    /// Deletes the files in `taken`, which the writer took last and did not use, and the prepared file after
    /// them. If the manifest cannot be updated, they stay in `taken` with their numbers, and the writer uses
    /// them later.
    pub(in crate::wal) fn give_back(&self, taken: &mut VecDeque<Prepared>) -> Result<()> {
        let mut numbers = self.numbers.lock();
        let first = taken.front().or(numbers.prepared.as_ref()).map(|prepared| prepared.number);
        let left = numbers.is_left.then_some(numbers.next);
        let Some(first) = first.or(left) else { return Ok(()) };
        // pool.5: from here on only the segments up to `before` are certainly named.
        let before = first.saturating_sub(1);
        numbers.named_to = numbers.named_to.min(before);
        (self.register.name)(before)?;
        numbers.named_to = before;
        numbers.next = first;
        if std::mem::take(&mut numbers.is_left) {
            return self.remove(&file_name::prepared_path(&self.dir, first));
        }
        let unused = std::mem::take(taken).into_iter().chain(numbers.prepared.take());
        self.remove_all(unused.map(|prepared| prepared.spare))
    }
}
