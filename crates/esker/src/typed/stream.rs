//! Iterators and watches of typed tables as streams (feature `tokio`).

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use esker_tuple::TypedKey;
use futures_core::Stream;

use super::changes::{TypedChanges, TypedWatch, typed};
use super::codec::Codec;
use super::multimap::{Pairs, pair};
use super::reads::{Entries, TypedKeys, entry};
use super::table::key_of;
use crate::{Change, Changes, EntryStream, EventStream, Keys, Range, Result, SeqNo};

/// A stream of typed items: made by the `into_stream` of [`Entries`], [`TypedKeys`], [`Pairs`],
/// [`TypedChanges`] and [`TypedWatch`]. It is safe to drop at any time.
pub struct TypedStream<S: Stream, T> {
    stream: S,
    convert: fn(S::Item) -> T,
}

impl<K: TypedKey, V, C: Codec<V>> Entries<K, V, C> {
    /// Converts the remaining entries, from the front, to a stream: see [`EntryStream`].
    pub fn into_stream(self) -> TypedStream<EntryStream<Range>, Result<(K, V)>> {
        TypedStream { stream: self.range.into_stream(), convert: |found| found.and_then(entry::<K, V, C>) }
    }
}

impl<K: TypedKey> TypedKeys<K> {
    /// Converts the remaining keys, from the front, to a stream: see [`EntryStream`].
    pub fn into_stream(self) -> TypedStream<EntryStream<Keys>, Result<K>> {
        TypedStream { stream: self.keys.into_stream(), convert: |key| key.and_then(|key| key_of(&key)) }
    }
}

impl<K: TypedKey, V: TypedKey> Pairs<K, V> {
    /// Converts the remaining pairs, from the front, to a stream: see [`EntryStream`].
    pub fn into_stream(self) -> TypedStream<EntryStream<Range>, Result<(K, V)>> {
        TypedStream { stream: self.0.range.into_stream(), convert: |found| found.and_then(pair) }
    }
}

/// A change and its commit.
type Changed<K, V> = Result<(SeqNo, Change<K, V>)>;

impl<K: TypedKey, V, C: Codec<V>> TypedChanges<K, V, C> {
    /// Converts the remaining changes to a stream: see [`EntryStream`]. Take [`seqno`](Self::seqno) before.
    pub fn into_stream(self) -> TypedStream<EntryStream<Changes>, Changed<K, V>> {
        let convert: fn(Result<(SeqNo, Change)>) -> _ = |change| change.and_then(typed::<K, V, C>);
        TypedStream { stream: self.changes.into_stream(), convert }
    }
}

impl<K: TypedKey, V, C: Codec<V>> TypedWatch<K, V, C> {
    /// Converts the queued and later changes to a stream: see [`EventStream`].
    pub fn into_stream(self) -> TypedStream<EventStream<Change>, Changed<K, V>> {
        TypedStream { stream: self.watch.into_stream(), convert: typed::<K, V, C> }
    }
}

impl<S: Stream + Unpin, T> TypedStream<S, T> {
    /// Returns the next item, or `None` after the last.
    pub async fn next(&mut self) -> Option<T> {
        poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await
    }
}

impl<S: Stream + Unpin, T> Stream for TypedStream<S, T> {
    type Item = T;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let typed = self.get_mut();
        Pin::new(&mut typed.stream).poll_next(context).map(|item| item.map(typed.convert))
    }
}
