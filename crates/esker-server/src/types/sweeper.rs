//! Background removal of expired keys and of garbage parts of collections.
//!
//! Parts are removed in several commits. The entry that names them is removed last.

use std::ops::ControlFlow;

use super::subkey::split_number;
use crate::resp::fail::Done;
use crate::run::cx::Cx;
use crate::store::record::Main;
use crate::store::{Order, Span, prefix_end};

/// Maximum number of keys removed at a time.
const AT_A_TIME: usize = 500;

/// Removes some expired keys of the database. Returns whether there may be more.
///
/// # Errors
/// Errors of the store.
pub fn expire_some(cx: &mut Cx<'_>) -> Done<bool> {
    let data = cx.session.data.clone();
    let end = (cx.now + 1).to_be_bytes();
    let span = Span { lower: std::ops::Bound::Unbounded, upper: std::ops::Bound::Excluded(&end) };
    let mut due = Vec::new();
    cx.access.reads().range(&data.ttl, span, Order::Up, &mut |key, _| {
        due.push(key.to_vec());
        if due.len() < AT_A_TIME { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    for entry in &due {
        let Some((expires, key)) = split_number(entry) else { continue };
        let raw = cx.access.reads().get(&data.main, key)?;
        match raw.map(Main::decode).transpose()? {
            Some(main) if main.expires == expires => cx.remove_expired(key, &main)?,
            // No command leaves such an entry (data.1), but if there is one, it would be met for ever.
            _ => cx.access.transaction()?.remove(&data.ttl, entry)?,
        }
    }
    Ok(due.len() == AT_A_TIME)
}

/// Removes some garbage parts. Returns whether there may be more.
///
/// # Errors
/// Errors of the store.
pub fn remove_garbage(cx: &mut Cx<'_>) -> Done<bool> {
    let data = cx.session.data.clone();
    let transaction = cx.access.transaction()?;
    let mut first = None;
    transaction.range(&data.garbage, Span::ALL, Order::Up, &mut |key, _| {
        first = Some(key.to_vec());
        ControlFlow::Break(())
    })?;
    let Some(entry) = first else { return Ok(false) };
    let mut parts = Vec::new();
    let end = prefix_end(&entry).unwrap_or_default();
    transaction.range(&data.sub, Span::between(&entry, &end), Order::Up, &mut |key, _| {
        parts.push(key.to_vec());
        if parts.len() < AT_A_TIME { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    for part in &parts {
        transaction.remove(&data.sub, part)?;
    }
    if parts.len() < AT_A_TIME {
        transaction.remove(&data.garbage, &entry)?;
    }
    Ok(true)
}
