//! Sets of keys or of columns: ranges and lists, put together.
//!
//! spans.1. Stretches are in order, none is empty, and none touches the next.

use std::ops::Bound;

use crate::store::{Order, Span, prefix_end};

/// From one name on, with it, up to another, without it, or to the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Where it begins.
    pub from: Vec<u8>,
    /// Where it ends.
    pub to: Option<Vec<u8>>,
}

impl Stretch {
    /// A range. An empty `to` is the end.
    pub fn range(from: &[u8], to: &[u8]) -> Self {
        Stretch { from: from.to_vec(), to: (!to.is_empty()).then(|| to.to_vec()) }
    }

    /// All that begin with this.
    pub fn prefix(prefix: &[u8]) -> Self {
        Stretch { from: prefix.to_vec(), to: prefix_end(prefix) }
    }

    /// One name.
    pub fn point(name: &[u8]) -> Self {
        Stretch { from: name.to_vec(), to: Some(next_name(name)) }
    }

    /// What a walk over these bounds visits.
    pub fn of_span(span: Span<'_>) -> Self {
        let from = match span.lower {
            Bound::Unbounded => Vec::new(),
            Bound::Included(name) => name.to_vec(),
            Bound::Excluded(name) => next_name(name),
        };
        let to = match span.upper {
            Bound::Unbounded => None,
            Bound::Included(name) => Some(next_name(name)),
            Bound::Excluded(name) => Some(name.to_vec()),
        };
        Stretch { from, to }
    }

    /// It as bounds of a walk.
    pub fn span(&self) -> Span<'_> {
        Span {
            lower: Bound::Included(&self.from),
            upper: self.to.as_deref().map_or(Bound::Unbounded, Bound::Excluded),
        }
    }

    fn is_empty(&self) -> bool {
        self.to.as_ref().is_some_and(|to| *to <= self.from)
    }

    /// Whether a name may lie in both.
    pub fn meets(&self, other: &Stretch) -> bool {
        let begins_in = |a: &Stretch, b: &Stretch| b.to.as_ref().is_none_or(|to| a.from < *to);
        begins_in(self, other) && begins_in(other, self)
    }

    fn contains(&self, name: &[u8]) -> bool {
        *self.from <= *name && self.to.as_deref().is_none_or(|to| name < to)
    }
}

/// The smallest name behind another.
pub fn next_name(name: &[u8]) -> Vec<u8> {
    [name, &[0]].concat()
}

/// Where a name stands.
#[derive(Debug, PartialEq, Eq)]
pub enum Place<'a> {
    /// In a stretch.
    Inside,
    /// Before a stretch, which is entered here: its beginning, or its end if one walks down.
    Before(&'a [u8]),
    /// Behind all of them.
    Behind,
}

/// A set of names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spans(Vec<Stretch>);

impl Spans {
    /// All names.
    pub fn all() -> Self {
        Spans(vec![Stretch::range(b"", b"")])
    }

    /// What lies in any of these.
    pub fn of(mut stretches: Vec<Stretch>) -> Self {
        stretches.retain(|stretch| !stretch.is_empty());
        stretches.sort_unstable_by(|a, b| a.from.cmp(&b.from));
        let mut spans: Vec<Stretch> = Vec::new();
        for next in stretches {
            match spans.last_mut() {
                // spans.1
                Some(last) if last.to.as_ref().is_none_or(|to| *to >= next.from) => {
                    if last.to.is_some() && (next.to.is_none() || next.to > last.to) {
                        last.to = next.to;
                    }
                }
                _ => spans.push(next),
            }
        }
        Spans(spans)
    }

    /// Those behind a name, on the way that one walks.
    pub fn after(self, name: &[u8], order: Order) -> Self {
        let mut stretches = self.0;
        for stretch in &mut stretches {
            match order {
                Order::Up => stretch.from = next_name(name).max(std::mem::take(&mut stretch.from)),
                Order::Down if stretch.to.as_deref().is_none_or(|to| to > name) => {
                    stretch.to = Some(name.to_vec());
                }
                Order::Down => {}
            }
        }
        Spans::of(stretches)
    }

    /// The stretches, on the way that one walks.
    pub fn in_order(&self, order: Order) -> impl Iterator<Item = &Stretch> {
        let len = self.0.len();
        (0..len).map(move |at| &self.0[if order == Order::Up { at } else { len - 1 - at }])
    }

    /// Where a name stands, for one that walks this way.
    pub fn place(&self, name: &[u8], order: Order) -> Place<'_> {
        match order {
            Order::Up => {
                let at = self.0.partition_point(|s| s.to.as_deref().is_some_and(|to| to <= name));
                match self.0.get(at) {
                    None => Place::Behind,
                    Some(stretch) if stretch.contains(name) => Place::Inside,
                    Some(stretch) => Place::Before(&stretch.from),
                }
            }
            Order::Down => {
                let at = self.0.partition_point(|stretch| *stretch.from <= *name);
                match at.checked_sub(1).map(|at| &self.0[at]) {
                    None => Place::Behind,
                    Some(stretch) if stretch.contains(name) => Place::Inside,
                    Some(stretch) => Place::Before(stretch.to.as_deref().unwrap_or_default()),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> impl Iterator<Item = Vec<u8>> {
        (0..=3).flat_map(|len: u32| {
            (0..3_usize.pow(len)).map(move |n| (0..len).map(|at| b"\0ab"[n / 3_usize.pow(at) % 3]).collect())
        })
    }

    #[test]
    fn spans_1_a_union_holds_what_any_part_holds() {
        let mut random = fastrand::Rng::with_seed(7);
        let all: Vec<Vec<u8>> = names().collect();
        for _ in 0..500 {
            let mut pick = || all[random.usize(..all.len())].clone();
            let parts: Vec<Stretch> = (0..3)
                .flat_map(|_| {
                    [Stretch::range(&pick(), &pick()), Stretch::point(&pick()), Stretch::prefix(&pick())]
                })
                .take(4)
                .collect();
            let (spans, pivot) = (Spans::of(parts.clone()), pick());
            assert!(spans.0.windows(2).all(|pair| pair[0].to.as_ref().is_some_and(|to| *to < pair[1].from)));
            let (up, down) =
                (spans.clone().after(&pivot, Order::Up), spans.clone().after(&pivot, Order::Down));
            for name in &all {
                let is_in = parts.iter().any(|part| !part.is_empty() && part.contains(name));
                for order in [Order::Up, Order::Down] {
                    assert_eq!(spans.place(name, order) == Place::Inside, is_in, "{parts:?} {name:?}");
                }
                assert_eq!(up.place(name, Order::Up) == Place::Inside, is_in && *name > pivot);
                assert_eq!(down.place(name, Order::Up) == Place::Inside, is_in && *name < pivot);
            }
        }
    }

    #[test]
    fn places_say_where_to_go_on() {
        let spans = Spans::of(vec![Stretch::range(b"b", b"d"), Stretch::range(b"f", b"h")]);
        let up = [&b"a"[..], b"b", b"d", b"h"].map(|name| spans.place(name, Order::Up));
        assert_eq!(up, [Place::Before(b"b"), Place::Inside, Place::Before(b"f"), Place::Behind]);
        let down = [&b"x"[..], b"f", b"e", b"a"].map(|name| spans.place(name, Order::Down));
        assert_eq!(down, [Place::Before(b"h"), Place::Inside, Place::Before(b"d"), Place::Behind]);
    }
}
