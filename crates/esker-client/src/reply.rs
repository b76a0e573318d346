//! Reads replies of both protocol versions.

use redis::Value;

use crate::{Bytes, Error, Result};

/// Reports a reply of unexpected form.
pub(crate) fn unexpected<T>(value: &Value) -> Result<T> {
    Err(Error::Reply(format!("{value:?}").chars().take(200).collect()))
}

pub(crate) fn done(value: Value) -> Result<()> {
    match value {
        Value::Okay => Ok(()),
        other => unexpected(&other),
    }
}

pub(crate) fn int(value: Value) -> Result<i64> {
    match value {
        Value::Int(n) => Ok(n),
        other => unexpected(&other),
    }
}

pub(crate) fn number(value: Value) -> Result<u64> {
    match value {
        Value::Int(n) if n >= 0 => Ok(n as u64),
        other => unexpected(&other),
    }
}

pub(crate) fn flag(value: Value) -> Result<bool> {
    Ok(int(value)? != 0)
}

pub(crate) fn bytes(value: Value) -> Result<Bytes> {
    match value {
        Value::BulkString(bytes) => Ok(bytes),
        Value::SimpleString(text) => Ok(text.into_bytes()),
        other => unexpected(&other),
    }
}

pub(crate) fn text(value: Value) -> Result<String> {
    let bytes = bytes(value)?;
    String::from_utf8(bytes).map_err(|error| Error::Reply(error.to_string()))
}

/// Reads a reply that may be nil.
pub(crate) fn option<T>(value: Value, read: impl FnOnce(Value) -> Result<T>) -> Result<Option<T>> {
    match value {
        Value::Nil => Ok(None),
        value => read(value).map(Some),
    }
}

/// Returns the items of a list. A nil reply is an empty list, and a map is a list of its keys and values.
pub(crate) fn items(value: Value) -> Result<Vec<Value>> {
    match value {
        Value::Array(items) | Value::Set(items) => Ok(items),
        Value::Map(pairs) => Ok(pairs.into_iter().flat_map(|(key, value)| [key, value]).collect()),
        Value::Nil => Ok(Vec::new()),
        other => unexpected(&other),
    }
}

pub(crate) fn list<T>(value: Value, read: impl FnMut(Value) -> Result<T>) -> Result<Vec<T>> {
    items(value)?.into_iter().map(read).collect()
}

/// Reads a list of `N` items.
pub(crate) fn array<const N: usize>(value: Value) -> Result<[Value; N]> {
    items(value)?.try_into().map_err(|items| Error::Reply(format!("{} items, not {N}", Vec::len(&items))))
}

/// Reads a list of groups of `N` items.
pub(crate) fn groups<const N: usize, T>(
    value: Value,
    read: impl FnMut([Value; N]) -> Result<T>,
) -> Result<Vec<T>> {
    let mut items = items(value)?.into_iter();
    let mut groups = Vec::with_capacity(items.len() / N);
    while items.len() > 0 {
        let group: Vec<Value> = items.by_ref().take(N).collect();
        groups.push(<[Value; N]>::try_from(group).map_err(|_| Error::Reply("half a group".to_owned()))?);
    }
    groups.into_iter().map(read).collect()
}

pub(crate) fn pairs(value: Value) -> Result<Vec<(Bytes, Bytes)>> {
    groups(value, |[name, data]| Ok((bytes(name)?, bytes(data)?)))
}
