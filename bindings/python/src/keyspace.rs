//! `Keyspace`: a keyspace as a `MutableMapping`, in its newest state or in a transaction.

use esker::{Durability, History, Key, Keyspace as Inner, Result, Value, ViewMut, WriteOptions};
use pyo3::exceptions::{PyKeyError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};

use crate::data::{Bounds, Data, Seconds};
use crate::error::{OrRaise, invalid, wait};
use crate::names::durability_of;
use crate::source::{Reader, Source};
use crate::view::{Entry, View, entry};

/// A named, ordered map of bytes to bytes: a `MutableMapping`. Text is encoded in UTF-8 on the way in.
#[pyclass(module = "esker", frozen, extends = View, mapping)]
pub(crate) struct Keyspace {
    /// The durability of its commits, unless it is that of the database.
    pub(crate) durability: Option<Durability>,
}

/// Makes a keyspace, or a view if it cannot be written.
pub(crate) fn keyspace(py: Python<'_>, reader: Reader) -> PyResult<Py<Keyspace>> {
    Py::new(py, PyClassInitializer::from(View { reader }).add_subclass(Keyspace { durability: None }))
}

type Own<'a, 'py> = &'a Bound<'py, Keyspace>;

fn reader<'a>(slf: Own<'a, '_>) -> &'a Reader {
    &slf.as_super().get().reader
}

/// Writes to the newest state or in a transaction, without the interpreter's lock.
fn write<T: Send>(
    slf: Own<'_, '_>,
    now: impl FnOnce(&Inner) -> Result<T> + Send,
    within: impl FnOnce(&mut ViewMut<'_>) -> Result<T> + Send,
) -> PyResult<T> {
    let Reader { keyspace, source, process, .. } = reader(slf);
    process.check(slf.py())?;
    wait(slf.py(), || match source {
        Source::Transaction(cell) => cell.with(|t| within(&mut t.keyspace_mut(keyspace))),
        _ => now(keyspace),
    })
}

fn lifetime(ttl: Option<Seconds>) -> Option<std::time::Duration> {
    ttl.map(|Seconds(ttl)| ttl)
}

/// Returns the keyspace for calls that do not work in transactions.
fn outside<'a>(slf: Own<'a, '_>) -> PyResult<&'a Inner> {
    let Reader { keyspace, source, process, .. } = reader(slf);
    process.check(slf.py())?;
    match source {
        Source::Transaction(_) => Err(invalid(slf.py(), "this call does not belong into a transaction")),
        _ => Ok(keyspace),
    }
}

/// Raises `KeyError`, unless there is a default.
fn missing<'py>(
    key: Option<&Data>,
    default: &Bound<'py, PyTuple>,
    py: Python<'py>,
) -> PyResult<Bound<'py, PyAny>> {
    match (default.len(), key) {
        (0, Some(key)) => Err(PyKeyError::new_err((PyBytes::new(py, key).unbind(),))),
        (0, None) => Err(PyKeyError::new_err("the keyspace is empty")),
        (1, _) => default.get_item(0),
        (n, _) => {
            Err(PyTypeError::new_err(format!("pop takes a key and a default, {} arguments given", n + 1)))
        }
    }
}

/// Reads pairs from a mapping or an iterable of pairs, and from keyword arguments.
fn pairs_of(
    from: Option<&Bound<'_, PyAny>>,
    named: Option<&Bound<'_, PyDict>>,
) -> PyResult<Vec<(Data, Data)>> {
    let mut pairs = Vec::new();
    if let Some(from) = from {
        let items = if from.hasattr("keys")? { from.call_method0("items")? } else { from.clone() };
        for pair in items.try_iter()? {
            pairs.push(pair?.extract()?);
        }
    }
    for (key, value) in named.into_iter().flat_map(|named| named.iter()) {
        pairs.push((key.extract()?, value.extract()?));
    }
    Ok(pairs)
}

#[pymethods]
impl Keyspace {
    fn __setitem__(slf: Own<'_, '_>, key: Data, value: Data) -> PyResult<()> {
        write(slf, |now| now.put(&key, &value).map(drop), |view| view.put(&key, &value))
    }

    /// Sets a key to a value, which expires after `ttl` seconds.
    #[pyo3(signature = (key, value, *, ttl = None))]
    fn put(slf: Own<'_, '_>, key: Data, value: Data, ttl: Option<Seconds>) -> PyResult<()> {
        match lifetime(ttl) {
            None => Self::__setitem__(slf, key, value),
            Some(ttl) => write(
                slf,
                |now| now.put_with_ttl(&key, &value, ttl).map(drop),
                |view| view.put_with_ttl(&key, &value, ttl),
            ),
        }
    }

    fn __delitem__(slf: Own<'_, '_>, key: Data) -> PyResult<()> {
        match write(slf, |now| now.remove(&key), |view| view.remove(&key))? {
            Some(_) => Ok(()),
            None => Err(PyKeyError::new_err((PyBytes::new(slf.py(), &key).unbind(),))),
        }
    }

    /// Removes a key, which may be missing. Reads nothing, so it is faster than `del`.
    fn delete(slf: Own<'_, '_>, key: Data) -> PyResult<()> {
        write(slf, |now| now.delete(&key).map(drop), |view| view.delete(&key))
    }

    /// Removes all keys of a range, in one step.
    #[pyo3(signature = (start = None, end = None, *, prefix = None))]
    fn delete_range(
        slf: Own<'_, '_>,
        start: Option<Data>,
        end: Option<Data>,
        prefix: Option<Data>,
    ) -> PyResult<()> {
        match &Bounds::of(start, end, prefix)? {
            Bounds::Prefix(prefix) => {
                write(slf, |now| now.delete_prefix(prefix).map(drop), |view| view.delete_prefix(prefix))
            }
            Bounds::Between(start, end) => {
                let range = (start.clone(), end.clone());
                write(slf, |now| now.delete_range(&range).map(drop), |view| view.delete_range(&range))
            }
        }
    }

    /// Removes all keys.
    fn clear(slf: Own<'_, '_>) -> PyResult<()> {
        write(slf, |now| now.clear().map(drop), |view| view.clear())
    }

    /// Merges an operand into a key with the merge operator of the keyspace, without reading the key.
    fn merge(slf: Own<'_, '_>, key: Data, operand: Data) -> PyResult<()> {
        write(slf, |now| now.merge(&key, &operand).map(drop), |view| view.merge(&key, &operand))
    }

    /// Adds to a number of 8 bytes, little-endian, and returns the number before. A missing key counts as 0.
    #[pyo3(signature = (key, by = 1))]
    fn add(slf: Own<'_, '_>, key: Data, by: i64) -> PyResult<i64> {
        write(slf, |now| now.fetch_add(&key, by), |view| view.fetch_add(&key, by))
    }

    /// Sets a key to `value` if its value is `expected`. `None` is a missing key. Returns whether it did. The
    /// new value keeps the lifetime of the old one.
    fn compare_and_swap(
        slf: Own<'_, '_>,
        key: Data,
        expected: Option<Data>,
        value: Option<Data>,
    ) -> PyResult<bool> {
        let (expected, value) = (expected.as_deref(), value.as_deref());
        let swap = write(
            slf,
            |now| now.compare_and_swap(&key, expected, value),
            |view| view.compare_and_swap(&key, expected, value),
        )?;
        Ok(swap.swapped)
    }

    /// Has a key expire after this many seconds. Returns whether there is such a key.
    fn expire(slf: Own<'_, '_>, key: Data, ttl: Seconds) -> PyResult<bool> {
        write(slf, |now| now.expire(&key, ttl.0), |view| view.expire(&key, ttl.0))
    }

    /// Has a key never expire. Returns whether there is such a key.
    fn persist(slf: Own<'_, '_>, key: Data) -> PyResult<bool> {
        write(slf, |now| now.persist(&key), |view| view.persist(&key))
    }

    /// Removes a key and returns its value, or the default. Without a default a missing key raises
    /// `KeyError`.
    #[pyo3(signature = (key, *default))]
    fn pop<'py>(
        slf: &Bound<'py, Self>,
        key: Data,
        default: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        match write(slf, |now| now.remove(&key), |view| view.remove(&key))? {
            Some(value) => Ok(PyBytes::new(py, &value).into_any()),
            None => missing(Some(&key), default, py),
        }
    }

    /// Removes and returns the first entry, or returns `None`.
    fn pop_first<'py>(slf: &Bound<'py, Self>) -> PyResult<Option<Entry<'py>>> {
        let found: Option<(Key, Value)> = write(slf, Inner::pop_first, |view| view.pop_first())?;
        Ok(entry(slf.py(), found))
    }

    /// Removes and returns the last entry, or returns `None`.
    fn pop_last<'py>(slf: &Bound<'py, Self>) -> PyResult<Option<Entry<'py>>> {
        let found: Option<(Key, Value)> = write(slf, Inner::pop_last, |view| view.pop_last())?;
        Ok(entry(slf.py(), found))
    }

    /// Removes and returns the last entry. Raises `KeyError` if there is none.
    fn popitem<'py>(slf: &Bound<'py, Self>) -> PyResult<Entry<'py>> {
        let found = Self::pop_last(slf)?;
        found.ok_or_else(|| PyKeyError::new_err("the keyspace is empty"))
    }

    /// Returns the value of a key. A missing key is set to `default` first.
    fn setdefault<'py>(slf: &Bound<'py, Self>, key: Data, default: Data) -> PyResult<Bound<'py, PyBytes>> {
        let swap = write(
            slf,
            |now| now.compare_and_swap(&key, None, Some(&default)),
            |view| view.compare_and_swap(&key, None, Some(&default)),
        )?;
        Ok(PyBytes::new(slf.py(), swap.old.as_deref().unwrap_or(&default)))
    }

    /// Puts all pairs of a mapping or iterable, in one commit.
    #[pyo3(signature = (other = None, /, **named))]
    fn update(
        slf: Own<'_, '_>,
        other: Option<&Bound<'_, PyAny>>,
        named: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        let pairs = pairs_of(other, named)?;
        let (db, durability) = (&reader(slf).db, slf.get().durability);
        write(
            slf,
            |now| {
                let mut batch = db.batch();
                pairs.iter().try_for_each(|(key, value)| batch.put(now, key, value))?;
                match durability {
                    Some(durability) => batch.commit_with(durability)?,
                    None => batch.commit()?,
                };
                Ok(())
            },
            |view| pairs.iter().try_for_each(|(key, value)| view.put(key, value)),
        )
    }

    /// Returns a handle of the keyspace that commits with this durability, and whose new values expire after
    /// `ttl` seconds.
    #[pyo3(signature = (*, durability = None, ttl = None))]
    fn using(slf: Own<'_, '_>, durability: Option<&str>, ttl: Option<Seconds>) -> PyResult<Py<Keyspace>> {
        let py = slf.py();
        let durability = durability.map(|name| durability_of(py, name)).transpose()?;
        let mut options = durability.map_or_else(WriteOptions::new, WriteOptions::from);
        if let Some(ttl) = lifetime(ttl) {
            options = options.ttl(ttl);
        }
        let reader = reader(slf);
        let view = View { reader: Reader { keyspace: reader.keyspace.with(options), ..reader.clone() } };
        Py::new(py, PyClassInitializer::from(view).add_subclass(Keyspace { durability }))
    }

    /// The name of the merge operator. Once set, it stays: "add-i64", "add-u64", "add-f64", "append", "min",
    /// "max", "bit-or", "bit-and" or "set-union".
    #[getter]
    fn merge_operator(slf: Own<'_, '_>) -> Option<String> {
        reader(slf).keyspace.merge_operator()
    }

    #[setter]
    fn set_merge_operator(slf: Own<'_, '_>, name: &str) -> PyResult<()> {
        let keyspace = outside(slf)?;
        wait(slf.py(), || keyspace.set_merge_operator(name))
    }

    /// The lifetime in seconds of values that are put without one. `None`: unlimited.
    #[getter]
    fn default_ttl(slf: Own<'_, '_>) -> Option<f64> {
        reader(slf).keyspace.default_ttl().map(|ttl| ttl.as_secs_f64())
    }

    #[setter]
    fn set_default_ttl(slf: Own<'_, '_>, ttl: Option<Seconds>) -> PyResult<()> {
        let keyspace = outside(slf)?;
        wait(slf.py(), || keyspace.set_default_ttl(lifetime(ttl)))
    }

    /// Size in bytes beyond which the oldest entries are removed. `None`: unlimited.
    #[getter]
    fn bytes_max(slf: Own<'_, '_>) -> Option<u64> {
        reader(slf).keyspace.bytes_max()
    }

    #[setter]
    fn set_bytes_max(slf: Own<'_, '_>, bytes: Option<u64>) -> PyResult<()> {
        let keyspace = outside(slf)?;
        wait(slf.py(), || keyspace.set_bytes_max(bytes))
    }

    /// Keeps older versions of the entries for `at`: this many of each key, or those of the last `seconds`.
    #[pyo3(signature = (*, versions = None, seconds = None))]
    fn keep_history(slf: Own<'_, '_>, versions: Option<u32>, seconds: Option<Seconds>) -> PyResult<()> {
        let history = match (versions, seconds) {
            (Some(versions), None) => History::Versions(versions),
            (None, Some(Seconds(time))) => History::For(time),
            (None, None) => History::None,
            _ => return Err(PyTypeError::new_err("give versions or seconds")),
        };
        let keyspace = outside(slf)?;
        wait(slf.py(), || keyspace.set_history(history))
    }

    /// Returns the keyspace as it was at a commit: see `keep_history`.
    fn at(slf: Own<'_, '_>, seqno: u64) -> PyResult<View> {
        let (py, keyspace) = (slf.py(), outside(slf)?);
        let seqno = esker::SeqNo::try_new(seqno).ok_or_else(|| invalid(py, "there are no such commits"))?;
        let past = keyspace.at(seqno).or_raise(py)?;
        let source = Source::Past(std::sync::Arc::new(past));
        Ok(View { reader: Reader { source, ..reader(slf).clone() } })
    }

    /// Compacts the tables of a range.
    #[pyo3(signature = (start = None, end = None))]
    fn compact(slf: Own<'_, '_>, start: Option<Data>, end: Option<Data>) -> PyResult<()> {
        let keyspace = outside(slf)?;
        let Bounds::Between(start, end) = Bounds::of(start, end, None)? else { return Ok(()) };
        wait(slf.py(), || keyspace.compact_range((start, end)))
    }
}
