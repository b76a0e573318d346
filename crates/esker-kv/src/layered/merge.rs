//! Pages of a transaction: what the store has, with the transaction's own writes on top.

use std::ops::Bound;

use bytes::Bytes;

use super::{View, data_range, user_key};
use crate::buffer::Buffer;
use crate::page::{Page, PageBuilder, Query};
use crate::{Order, Result, Span};

/// Reads the first entries of a range of a space.
pub(super) async fn page_of<V: View>(
    view: &V,
    own: Option<&Buffer>,
    id: u32,
    query: &Query<'_>,
) -> Result<Page> {
    let (mut from, mut to) = data_range(id, &query.span);
    let mut page = PageBuilder::new(query);
    while from < to {
        let stored = view.page(Query { span: Span::between(&from, &to), ..*query }).await?;
        // The stretch of the range that this page is about.
        let (lower, upper) = match stored.entries.last().filter(|_| stored.has_more) {
            None => (from.clone(), to.clone()),
            Some((last, _)) if query.order == Order::Up => (from.clone(), behind(last)),
            Some((last, _)) => (last.clone(), to.clone()),
        };
        if fill(&mut page, stored, own, (&lower, &upper), query.order) {
            break;
        }
        match query.order {
            Order::Up => from = upper,
            Order::Down => to = lower,
        }
        skip_removed(own, &mut from, &to, query.order);
    }
    Ok(page.finish())
}

fn behind(key: &Bytes) -> Bytes {
    let mut bytes = key.to_vec();
    bytes.push(0);
    Bytes::from(bytes)
}

/// Moves the beginning of a range over keys that the transaction has removed, so that the store need not
/// return them.
fn skip_removed(own: Option<&Buffer>, from: &mut Bytes, to: &Bytes, order: Order) {
    let Some(own) = own.filter(|_| order == Order::Up) else { return };
    let Some(end) = own.removed_to(from) else { return };
    let next = own.written(Bound::Included(from), Bound::Excluded(to)).next();
    *from = next.map_or(end, |(key, _)| key.min(end)).clone();
}

/// Adds the entries of a stretch to a page. Returns whether the page is full.
fn fill(
    page: &mut PageBuilder,
    stored: Page,
    own: Option<&Buffer>,
    (lower, upper): (&Bytes, &Bytes),
    order: Order,
) -> bool {
    let Some(own) = own else {
        return stored.entries.into_iter().any(|(key, value)| page.push(user_key(&key), value));
    };
    let is_before = |a: &Bytes, b: &Bytes| if order == Order::Up { a < b } else { a > b };
    let written = own.written(Bound::Included(lower), Bound::Excluded(upper));
    let mut written: Box<dyn Iterator<Item = _> + Send> =
        if order == Order::Up { Box::new(written) } else { Box::new(written.rev()) };
    let mut next = written.next();
    for (key, value) in stored.entries {
        while let Some((own_key, own_value)) = next.filter(|(own_key, _)| is_before(own_key, &key)) {
            next = written.next();
            if own_value.as_ref().is_some_and(|value| page.push(user_key(own_key), value.clone())) {
                return true;
            }
        }
        let is_own = next.is_some_and(|(own_key, _)| *own_key == key) || own.get(&key).is_some();
        if !is_own && page.push(user_key(&key), value) {
            return true;
        }
    }
    while let Some((own_key, own_value)) = next {
        next = written.next();
        if own_value.as_ref().is_some_and(|value| page.push(user_key(own_key), value.clone())) {
            return true;
        }
    }
    false
}
