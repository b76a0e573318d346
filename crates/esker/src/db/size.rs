//! Sizes: estimates for ranges, keys that cut ranges into equal parts, the maximum of a keyspace, and
//! compaction of a range.

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

    /// Sets the size beyond which this keyspace loses its oldest entries, as a log or a cache does; `None`:
    /// unlimited. The database stores this. The size is that of the live entries, with their values in blob
    /// files, as stored on disk; an entry counts at most twice its bytes before compression, with 16 bytes
    /// for its frame. Removed and overwritten versions take more space until a compaction drops them, but
    /// they never cost a live entry.
    ///
    /// The background checks the size about every quarter of a second, and so do [`Db::sweep`] and
    /// [`Db::compact`]. Beyond the size they remove entries by ordinary commits until seven eighths of it are
    /// left. Before that they read the whole keyspace, which they do again only after it has grown by a
    /// sixteenth of the size. Of two keys the one written last stays longer, and a key goes as a whole: no
    /// older value of it comes back. A transaction that has read a removed key conflicts. Snapshots, history,
    /// the change feed and replicas treat the removals like any others.
    ///
    /// Entries written before the limit was set count as equally old. The entries of one commit go together,
    /// or stay until newer ones make up for them. For a limit by age, see
    /// [`set_default_ttl`](Self::set_default_ttl).
    ///
    /// [`Db::sweep`]: crate::Db::sweep
    /// [`Db::compact`]: crate::Db::compact
    ///
    /// ```
    /// # let db = esker::Db::builder().background(false).open_in_memory()?;
    /// let recent = db.keyspace("recent")?;
    /// recent.set_bytes_max(100_000)?;
    /// # for n in 0..1000_u32 { recent.put(n.to_be_bytes(), [7; 1000])?; }
    /// db.sweep()?;
    /// assert!(recent.get(0_u32.to_be_bytes())?.is_none() && recent.get(999_u32.to_be_bytes())?.is_some());
    /// # Ok::<(), esker::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Invalid`](crate::Error::Invalid) for zero; those of [`delete`](Self::delete).
    pub fn set_bytes_max(&self, bytes: impl Into<Option<u64>>) -> Result<()> {
        let bytes = bytes.into();
        self.core().change_options(&self.state, |options| options.bytes_max = bytes)
    }

    /// The size beyond which this keyspace loses its oldest entries.
    pub fn bytes_max(&self) -> Option<u64> {
        self.options().bytes_max
    }

    /// Compacts a range of keys: brings back the space of removed, overwritten and expired entries in it, and
    /// leaves one run of tables there. Rewrites the tables that hold keys of the range, as a whole, and no
    /// others of the lowest run. Memtables are flushed, with the keys of all keyspaces. Otherwise it does for
    /// the range what [`Db::compact`](crate::Db::compact) does.
    ///
    /// ```
    /// # let db = esker::Db::builder().background(false).open_in_memory()?;
    /// let logs = db.keyspace("logs")?;
    /// # for n in 0..100_u32 { logs.put(format!("2024-{n}"), "started")?; }
    /// logs.delete_prefix("2024-")?;
    /// logs.compact_range("2024-".."2024.")?;
    /// assert_eq!(logs.approximate_size(..)?, 0);
    /// # Ok::<(), esker::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`KeyspaceNotFound`](crate::Error::KeyspaceNotFound), and those of
    /// [`Db::compact`](crate::Db::compact).
    pub fn compact_range(&self, range: impl KeyBounds) -> Result<()> {
        self.core().check_there(&self.state)?;
        match encoded_range(self.state.id, &range) {
            Some(range) => self.core().compact_all(Some(&range)),
            None => self.core().check_able(),
        }
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
