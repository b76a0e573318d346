//! A sorted set: a collection in two orders.
//!
//! ```text
//!   0, member               --> score      by member
//!   1, score, member        --> nothing    by score: see `ordered_score`
//! ```
//!
//! Each member has one part of each kind, with the same score.

use std::ops::{Bound, ControlFlow};

use super::collection::Collection;
use super::subkey::{ordered_score, score_of};
use crate::resp::fail::Done;
use crate::run::cx::Cx;
use crate::store::record::Kind;
use crate::store::{Order, Span, prefix_end};

const BY_MEMBER: u8 = 0;
const BY_SCORE: u8 = 1;

/// A member and its score.
pub type Scored = (Vec<u8>, f64);

/// A sorted set.
pub struct SortedSet(Collection);

/// A range of members in one of the orders, as bounds of sub-keys.
pub struct ZSpan {
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
}

fn by_member(member: &[u8]) -> Vec<u8> {
    [&[BY_MEMBER], member].concat()
}

fn by_score(score: f64, member: &[u8]) -> Vec<u8> {
    [&[BY_SCORE][..], &ordered_score(score), member].concat()
}

fn score_in(value: &[u8]) -> f64 {
    value.try_into().map_or(0.0, |bytes| f64::from_bits(u64::from_le_bytes(bytes)))
}

fn as_slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}

impl ZSpan {
    /// All members by score.
    pub fn all() -> Self {
        ZSpan { lower: Bound::Included(vec![BY_SCORE]), upper: Bound::Excluded(vec![BY_SCORE + 1]) }
    }

    /// Members with scores in these bounds.
    pub fn scores(min: Bound<f64>, max: Bound<f64>) -> Self {
        // All members with a score follow the score itself.
        let behind = |score| prefix_end(&by_score(score, b"")).unwrap_or_default();
        let all = Self::all();
        let lower = match min {
            Bound::Included(score) => Bound::Included(by_score(score, b"")),
            Bound::Excluded(score) => Bound::Included(behind(score)),
            Bound::Unbounded => all.lower,
        };
        let upper = match max {
            Bound::Included(score) => Bound::Excluded(behind(score)),
            Bound::Excluded(score) => Bound::Excluded(by_score(score, b"")),
            Bound::Unbounded => all.upper,
        };
        ZSpan { lower, upper }
    }

    /// Members in these bounds, by member.
    pub fn members(min: Bound<&[u8]>, max: Bound<&[u8]>) -> Self {
        let lower = match min {
            Bound::Unbounded => Bound::Included(vec![BY_MEMBER]),
            bound => bound.map(by_member),
        };
        let upper = match max {
            Bound::Unbounded => Bound::Excluded(vec![BY_MEMBER + 1]),
            bound => bound.map(by_member),
        };
        ZSpan { lower, upper }
    }
}

/// Is passed members with their scores.
pub type TryVisitScored<'v> = dyn FnMut(&[u8], f64) -> Done<ControlFlow<()>> + 'v;

impl SortedSet {
    /// See [`Collection::open`].
    ///
    /// # Errors
    /// See there.
    pub fn open(cx: &mut Cx<'_>, key: &[u8]) -> Done<Option<Self>> {
        Ok(Collection::open(cx, key, Kind::SortedSet)?.map(SortedSet))
    }

    /// See [`Collection::open_or_new`].
    ///
    /// # Errors
    /// See there.
    pub fn open_or_new(cx: &mut Cx<'_>, key: &[u8]) -> Done<Self> {
        Collection::open_or_new(cx, key, Kind::SortedSet).map(SortedSet)
    }

    /// See [`Collection::new`].
    ///
    /// # Errors
    /// See there.
    pub fn new(cx: &mut Cx<'_>, key: &[u8]) -> Done<Self> {
        Collection::new(cx, key, Kind::SortedSet).map(SortedSet)
    }

    /// The sorted set of an open collection.
    pub fn of(collection: Collection) -> Self {
        SortedSet(collection)
    }

    /// The members of a sorted set, or of a set, whose members count with score 1.
    ///
    /// # Errors
    /// If the key holds another kind; the store's.
    pub fn all_of(cx: &mut Cx<'_>, key: &[u8]) -> Done<Vec<Scored>> {
        match cx.main(key)? {
            None => Ok(Vec::new()),
            Some(main) if main.kind == Kind::Set => {
                let members = Collection::of(key, &main)?.subs(cx)?;
                Ok(members.into_iter().map(|member| (member, 1.0)).collect())
            }
            Some(main) if main.kind == Kind::SortedSet => {
                SortedSet(Collection::of(key, &main)?).list(cx, &ZSpan::all(), Order::Up, 0, usize::MAX)
            }
            Some(_) => Err(crate::resp::fail::Fail::WrongType),
        }
    }

    /// Number of members.
    pub fn len(&self) -> u64 {
        self.0.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Its key.
    pub fn key(&self) -> &[u8] {
        self.0.key()
    }

    /// The score of a member.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn score(&self, cx: &Cx<'_>, member: &[u8]) -> Done<Option<f64>> {
        Ok(self.0.get(cx, &by_member(member))?.map(|value| score_in(&value)))
    }

    /// Sets the score of a member, replacing its old one.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn put(&mut self, cx: &mut Cx<'_>, member: &[u8], old: Option<f64>, score: f64) -> Done {
        // The order by score has one zero.
        let score = score + 0.0;
        match old {
            Some(old) => self.0.remove(cx, &by_score(old, member))?,
            None => self.0.shape.len += 1,
        }
        self.0.put(cx, &by_member(member), &score.to_bits().to_le_bytes())?;
        self.0.put(cx, &by_score(score, member), b"")
    }

    /// Removes a member with this score.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn remove(&mut self, cx: &mut Cx<'_>, member: &[u8], score: f64) -> Done {
        self.0.remove(cx, &by_member(member))?;
        self.0.remove(cx, &by_score(score, member))?;
        self.0.shape.len = self.0.shape.len.saturating_sub(1);
        Ok(())
    }

    /// See [`Collection::save`].
    ///
    /// # Errors
    /// See there.
    pub fn save(self, cx: &mut Cx<'_>) -> Done {
        self.0.save(cx)
    }

    /// Passes the members of a range to `visit`, with their scores.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn walk(
        &self,
        cx: &Cx<'_>,
        span: &ZSpan,
        order: Order,
        visit: &mut dyn FnMut(&[u8], f64) -> ControlFlow<()>,
    ) -> Done {
        self.try_walk(cx, span, order, &mut |member, score| Ok(visit(member, score)))
    }

    /// Same as `walk`, but `visit` may fail.
    ///
    /// # Errors
    /// The store's; those of `visit`.
    pub fn try_walk(&self, cx: &Cx<'_>, span: &ZSpan, order: Order, visit: &mut TryVisitScored<'_>) -> Done {
        let span = Span { lower: as_slice(&span.lower), upper: as_slice(&span.upper) };
        self.0.try_range(cx, span, order, &mut |sub, value| match sub.split_first() {
            Some((&BY_MEMBER, member)) => visit(member, score_in(value)),
            Some((_, rest)) => match rest.split_first_chunk::<8>() {
                Some((score, member)) => visit(member, score_of(*score)),
                None => Ok(ControlFlow::Continue(())),
            },
            None => Ok(ControlFlow::Continue(())),
        })
    }

    /// At most `count` members of a range, after the first `skip` (command_memory.1).
    ///
    /// # Errors
    /// The store's; if they are too large.
    pub fn list(
        &self,
        cx: &Cx<'_>,
        span: &ZSpan,
        order: Order,
        skip: usize,
        count: usize,
    ) -> Done<Vec<Scored>> {
        let (mut passed, mut found) = (0, Vec::new());
        if count == 0 {
            return Ok(found);
        }
        self.try_walk(cx, span, order, &mut |member, score| {
            if passed < skip {
                passed += 1;
                return Ok(ControlFlow::Continue(()));
            }
            cx.gather(member.len())?;
            found.push((member.to_vec(), score));
            Ok(if found.len() < count { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        })?;
        Ok(found)
    }

    /// Number of members in a range.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn count(&self, cx: &Cx<'_>, span: &ZSpan) -> Done<usize> {
        let mut count = 0;
        self.walk(cx, span, Order::Up, &mut |_, _| {
            count += 1;
            ControlFlow::Continue(())
        })?;
        Ok(count)
    }
}
