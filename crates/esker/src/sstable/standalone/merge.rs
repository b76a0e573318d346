//! Merges several tables into one.

use super::{Reader, Writer};
use crate::types::cursor::SourceCursor;
use crate::types::{Error, Result};

/// Merges tables into `writer`. For each key, `reduce` receives the key and its values, in the order of
/// `readers` (newest first, by convention), and returns the merged value, or `None` to drop the key.
///
/// A tombstone ends the values of its key, and is not written itself. If there are older tables, merge them
/// too, or their values reappear.
///
/// Returns [`Error::Invalid`] for several tables if one comes from a database and holds removals. The
/// removals could not be applied to the other tables, so removed keys would reappear.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = |name: &str| dir.path().join(name);
/// # use esker::sstable::{self, Reader, Writer};
/// # let write = |name: &str, pairs: &[(&str, &str)]| -> esker::Result<Reader> {
/// #     let mut writer = Writer::create(path(name))?;
/// #     for (k, v) in pairs { writer.put(k.as_bytes(), v.as_bytes())?; }
/// #     writer.finish()?;
/// #     Reader::open(path(name))
/// # };
/// let new = write("new.sst", &[("a", "2"), ("b", "")])?;
/// let old = write("old.sst", &[("a", "1"), ("b", "1"), ("c", "1")])?;
/// let mut writer = Writer::create(path("merged.sst"))?;
/// // The newest value wins; an empty one deletes.
/// let newest = |_: &[u8], values: &[&[u8]]| (!values[0].is_empty()).then(|| values[0].to_vec());
/// sstable::merge(&[new, old], &mut writer, newest)?;
/// writer.finish()?;
///
/// let merged = Reader::open(path("merged.sst"))?;
/// assert_eq!(merged.len(), 2);
/// assert_eq!(merged.get(b"a")?.unwrap(), b"2");
/// # Ok::<(), esker::Error>(())
/// ```
pub fn merge(
    readers: &[Reader],
    writer: &mut Writer,
    mut reduce: impl FnMut(&[u8], &[&[u8]]) -> Option<Vec<u8>>,
) -> Result<()> {
    if readers.len() > 1 && readers.iter().any(Reader::has_removals_of_database) {
        return Err(Error::Invalid(
            "one of the tables holds removals, as tables of a database do: they cannot be applied when merging".into(),
        ));
    }
    let mut sources: Vec<_> = readers.iter().map(|reader| (reader, reader.passing_cursor())).collect();
    for (_, cursor) in &mut sources {
        cursor.seek_first()?;
    }
    let mut key = Vec::new();
    loop {
        let positions = sources.iter().filter(|(_, cursor)| cursor.valid());
        let Some(smallest) = positions.map(|(_, cursor)| cursor.key()).min() else { return Ok(()) };
        key.clear();
        key.extend_from_slice(smallest);
        let on_key = sources.iter().filter(|(_, cursor)| cursor.valid() && cursor.key() == key);
        let before_tombstone = on_key.take_while(|(reader, cursor)| reader.stands_on_live(cursor));
        let values: Vec<&[u8]> = before_tombstone.map(|(_, cursor)| cursor.stored().beside()).collect();
        if !values.is_empty()
            && let Some(value) = reduce(&key, &values)
        {
            writer.put(&key, &value)?;
        }
        for (_, cursor) in &mut sources {
            if cursor.valid() && cursor.key() == key {
                cursor.next()?;
            }
        }
    }
}
