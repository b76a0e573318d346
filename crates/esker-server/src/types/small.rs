//! The parts of a small collection in one byte string: sub-keys and values with their lengths, sorted by
//! sub-key.
//!
//! Sub-keys are strictly ascending.

use std::ops::{ControlFlow, Range};

use crate::store::{Order, Span, Visit};
use std::ops::Bound;

/// Larger collections store their parts as separate records.
pub(super) const SMALL_BYTES_MAX: usize = 1024;

/// A part: its position, sub-key and value.
struct Part<'a> {
    at: Range<usize>,
    sub: &'a [u8],
    value: &'a [u8],
}

/// Takes bytes with their length. Damage ends the parts.
fn piece<'a>(bytes: &'a [u8], at: &mut usize) -> Option<&'a [u8]> {
    let len = match *bytes.get(*at)? {
        0xFF => {
            let len = u16::from_le_bytes(bytes.get(*at + 1..*at + 3)?.try_into().ok()?);
            *at += 3;
            usize::from(len)
        }
        len => {
            *at += 1;
            usize::from(len)
        }
    };
    let piece = bytes.get(*at..*at + len)?;
    *at += len;
    Some(piece)
}

fn put_piece(bytes: &mut Vec<u8>, piece: &[u8]) {
    match u8::try_from(piece.len()) {
        Ok(len) if len < 0xFF => bytes.push(len),
        _ => {
            bytes.push(0xFF);
            bytes.extend_from_slice(&(piece.len() as u16).to_le_bytes());
        }
    }
    bytes.extend_from_slice(piece);
}

fn parts(bytes: &[u8]) -> impl Iterator<Item = Part<'_>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at;
        let sub = piece(bytes, &mut at)?;
        let value = piece(bytes, &mut at)?;
        Some(Part { at: start..at, sub, value })
    })
}

/// Decodes all parts. `None` if bytes are left over, or if they exceed the limit.
pub(super) fn decode(bytes: &[u8]) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
    let (mut found, mut end) = (Vec::new(), 0);
    for part in parts(bytes) {
        end = part.at.end;
        found.push((part.sub.to_vec(), part.value.to_vec()));
    }
    (end == bytes.len() && end <= SMALL_BYTES_MAX).then_some(found)
}

/// The value of a sub-key.
pub(super) fn get<'a>(bytes: &'a [u8], sub: &[u8]) -> Option<&'a [u8]> {
    parts(bytes).find(|part| part.sub == sub).map(|part| part.value)
}

/// Sets a sub-key. Returns false, without a change, if it does not fit.
pub(super) fn put(bytes: &mut Vec<u8>, sub: &[u8], value: &[u8]) -> bool {
    if bytes.len() + sub.len() + value.len() + 6 > SMALL_BYTES_MAX {
        return false;
    }
    let at = match parts(bytes).find(|part| part.sub >= sub) {
        Some(part) if part.sub == sub => part.at,
        Some(part) => part.at.start..part.at.start,
        None => bytes.len()..bytes.len(),
    };
    let mut new = Vec::with_capacity(sub.len() + value.len() + 6);
    put_piece(&mut new, sub);
    put_piece(&mut new, value);
    bytes.splice(at, new);
    true
}

/// Removes a sub-key.
pub(super) fn remove(bytes: &mut Vec<u8>, sub: &[u8]) {
    let found = parts(bytes).find(|part| part.sub == sub).map(|part| part.at);
    if let Some(at) = found {
        bytes.drain(at);
    }
}

fn is_inside(span: &Span<'_>, sub: &[u8]) -> bool {
    let is_after = match span.lower {
        Bound::Included(lower) => sub >= lower,
        Bound::Excluded(lower) => sub > lower,
        Bound::Unbounded => true,
    };
    let is_before = match span.upper {
        Bound::Included(upper) => sub <= upper,
        Bound::Excluded(upper) => sub < upper,
        Bound::Unbounded => true,
    };
    is_after && is_before
}

/// Passes the parts of a range to `visit`.
pub(super) fn range(bytes: &[u8], span: Span<'_>, order: Order, visit: &mut Visit<'_>) {
    let mut inside = parts(bytes).filter(|part| is_inside(&span, part.sub));
    let mut show = |part: Part<'_>| visit(part.sub, part.value);
    let _: ControlFlow<()> = match order {
        Order::Up => inside.try_for_each(show),
        Order::Down => {
            let all: Vec<_> = inside.collect();
            all.into_iter().rev().try_for_each(&mut show)
        }
    };
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn all(bytes: &[u8], span: Span<'_>, order: Order) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut found = Vec::new();
        range(bytes, span, order, &mut |sub, value| {
            found.push((sub.to_vec(), value.to_vec()));
            ControlFlow::Continue(())
        });
        found
    }

    #[test]
    fn it_does_what_a_map_does() {
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..200 {
            let (mut bytes, mut model) = (Vec::new(), BTreeMap::new());
            for _ in 0..60 {
                let sub = vec![b'a' + random.u8(0..10); random.usize(0..4)];
                if random.u8(0..3) == 0 {
                    remove(&mut bytes, &sub);
                    model.remove(&sub);
                } else {
                    let value =
                        vec![random.u8(..); if random.u8(0..20) == 0 { 300 } else { random.usize(0..6) }];
                    if put(&mut bytes, &sub, &value) {
                        model.insert(sub.clone(), value);
                    }
                }
                assert_eq!(get(&bytes, &sub), model.get(&sub).map(Vec::as_slice));
            }
            assert!(bytes.len() <= SMALL_BYTES_MAX);
            let pairs = |range: Vec<(&Vec<u8>, &Vec<u8>)>| -> Vec<_> {
                range.into_iter().map(|(sub, value)| (sub.clone(), value.clone())).collect()
            };
            assert_eq!(all(&bytes, Span::ALL, Order::Up), pairs(model.iter().collect()));
            let (from, to) = (b"b".to_vec(), b"e".to_vec());
            let part = pairs(model.range(from.clone()..to.clone()).rev().collect());
            assert_eq!(all(&bytes, Span::between(&from, &to), Order::Down), part);
        }
    }

    #[test]
    fn damage_ends_the_parts() {
        let mut bytes = Vec::new();
        assert!(put(&mut bytes, b"a", b"1") && put(&mut bytes, b"b", b"2"));
        for cut in 0..bytes.len() {
            all(&bytes[..cut], Span::ALL, Order::Up);
        }
    }
}
