//! Estimated sizes of ranges, and keys that cut ranges into equal parts.

use super::bounds::encoded_range;
use super::key_handle::Key;
use super::keyspace::Keyspace;
use crate::read::view::ReadView;
use crate::types::key::decode_key;
use crate::types::key_range::KeyRange;
use crate::types::{KeyBounds, Result};

impl Keyspace {
    /// Estimates how many bytes on disk the entries of a range take, with their values in blob files. Reads
    /// no entries: the sizes come from the manifest, the indexes of tables at the ends of the range, and the
    /// upper nodes of memtables.
    ///
    /// Counted are all versions that are stored, including removed and overwritten ones. What is not flushed
    /// counts as in memory, uncompressed. In each run of tables the estimate is off by at most two blocks
    /// (8 KiB each by default) and the values in blob files that these point to. For a part of a memtable the
    /// error is larger.
    ///
    /// # Errors
    /// [`KeyspaceNotFound`](crate::Error::KeyspaceNotFound), [`Closed`](crate::Error::Closed), and those of
    /// opening a table.
    pub fn approximate_size(&self, range: impl KeyBounds) -> Result<u64> {
        self.estimate(range, |view, range| view.approximate_size(range))
    }

    /// Returns at most `parts - 1` ascending keys that cut a range into parts of about equal size, as
    /// [`approximate_size`](Self::approximate_size) measures it. There are fewer if the range is small. The
    /// keys lie inside the range and need not exist. Costs memory for some 64 keys of each part.
    ///
    /// Threads that scan one part each see a consistent whole through one snapshot:
    ///
    /// ```
    /// use std::ops::Bound;
    /// # let db = esker::Db::in_memory()?;
    /// let users = db.keyspace("users")?;
    /// # for n in 0..1000_u32 { users.put(n.to_be_bytes(), "ann")?; }
    /// let snapshot = db.snapshot();
    /// let points = users.split_points(.., 4)?;
    /// let starts = std::iter::once(Bound::Unbounded).chain(points.iter().map(Bound::Included));
    /// let ends = points.iter().map(Bound::Excluded).chain([Bound::Unbounded]);
    /// let scan = |part: (Bound<&esker::Key>, Bound<&esker::Key>)| snapshot.range(&users, part).count();
    /// let entries: usize = std::thread::scope(|scope| {
    ///     let parts: Vec<_> = starts.zip(ends).map(|part| scope.spawn(move || scan(part))).collect();
    ///     parts.into_iter().map(|part| part.join().unwrap()).sum()
    /// });
    /// assert_eq!(entries as u64, users.len()?);
    /// # Ok::<(), esker::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`approximate_size`](Self::approximate_size).
    pub fn split_points(&self, range: impl KeyBounds, parts: usize) -> Result<Vec<Key>> {
        let points = self.estimate(range, |view, range| view.split_points(range, parts as u64))?;
        let user_key = |point: Vec<u8>| decode_key(&point).map(|(_, key)| Key::new(key));
        Ok(points.into_iter().filter_map(user_key).collect())
    }

    /// Estimates something of the newest state. The answer for an empty range is the default.
    fn estimate<T: Default>(
        &self,
        range: impl KeyBounds,
        estimate: impl FnOnce(&ReadView, &KeyRange) -> Result<T>,
    ) -> Result<T> {
        let range = encoded_range(self.state.id, &range);
        let view = self.core().view.get();
        view.check_open()?;
        self.core().check_there(&self.state)?;
        range.map_or(Ok(T::default()), |range| estimate(&view, &range))
    }
}
