//! Iterators and watches of typed tables as streams (feature `tokio`).

use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

use esker_tuple::TypedKey;
use futures_core::Stream;

use super::changes::{TypedChanges, TypedVersions, TypedWatch, typed, typed_version};
use super::codec::Codec;
use super::multimap::{Pairs, Values, pair};
use super::reads::{Entries, TypedKeys, entry};
use super::table::key_of;
use crate::{Change, Changes, EntryStream, EventStream, Keys, Range, Result, SeqNo, Version, Versions};

/// A stream of typed items: made by the `into_stream` of the iterators and watches of typed tables. It is
/// safe to drop at any time.
pub struct TypedStream<S: Stream, T, F = fn(<S as Stream>::Item) -> T> {
    stream: S,
    convert: F,
    items: PhantomData<fn() -> T>,
}

impl<S: Stream, T, F: FnMut(S::Item) -> T> TypedStream<S, T, F> {
    fn new(stream: S, convert: F) -> Self {
        Self { stream, convert, items: PhantomData }
    }
}

impl<K: TypedKey, V, C: Codec<V>> Entries<K, V, C> {
    /// Converts the remaining entries, from the front, to a stream: see [`EntryStream`].
    pub fn into_stream(self) -> TypedStream<EntryStream<Range>, Result<(K, V)>> {
        TypedStream::new(self.range.into_stream(), |found| found.and_then(entry::<K, V, C>))
    }
}

impl<K: TypedKey> TypedKeys<K> {
    /// Converts the remaining keys, from the front, to a stream: see [`EntryStream`].
    pub fn into_stream(self) -> TypedStream<EntryStream<Keys>, Result<K>> {
        TypedStream::new(self.keys.into_stream(), |key| key.and_then(|key| key_of(&key)))
    }
}

impl<K: TypedKey, V: TypedKey> Pairs<K, V> {
    /// Converts the remaining pairs, from the front, to a stream: see [`EntryStream`].
    pub fn into_stream(self) -> TypedStream<EntryStream<Range>, Result<(K, V)>> {
        TypedStream::new(self.0.range.into_stream(), |found| found.and_then(pair))
    }
}

impl<K: TypedKey, V: TypedKey> Values<K, V> {
    /// Converts the remaining values, from the front, to a stream: see [`EntryStream`].
    pub fn into_stream(self) -> TypedStream<EntryStream<Range>, Result<V>> {
        let range = self.0.0.range;
        TypedStream::new(range.into_stream(), |found| found.and_then(pair::<K, V>).map(|(_, value)| value))
    }
}

impl<V, C: Codec<V>> TypedVersions<V, C> {
    /// Converts the remaining versions to a stream: see [`EntryStream`].
    pub fn into_stream(
        self,
    ) -> TypedStream<
        EntryStream<Versions>,
        Result<Version<V>>,
        impl FnMut(Result<Version>) -> Result<Version<V>>,
    > {
        let Self { versions, key, .. } = self;
        TypedStream::new(versions.into_stream(), move |found| typed_version::<V, C>(&key, found?))
    }
}

/// A change and its commit.
type Changed<K, V> = Result<(SeqNo, Change<K, V>)>;

impl<K: TypedKey, V, C: Codec<V>> TypedChanges<K, V, C> {
    /// Converts the remaining changes to a stream: see [`EntryStream`]. Take [`seqno`](Self::seqno) before.
    pub fn into_stream(self) -> TypedStream<EntryStream<Changes>, Changed<K, V>> {
        TypedStream::new(self.changes.into_stream(), |change| change.and_then(typed::<K, V, C>))
    }
}

impl<K: TypedKey, V, C: Codec<V>> TypedWatch<K, V, C> {
    /// Converts the queued and later changes to a stream: see [`EventStream`].
    pub fn into_stream(self) -> TypedStream<EventStream<Change>, Changed<K, V>> {
        TypedStream::new(self.watch.into_stream(), typed::<K, V, C>)
    }
}

impl<S: Stream + Unpin, T, F: FnMut(S::Item) -> T + Unpin> TypedStream<S, T, F> {
    /// Returns the next item, or `None` after the last.
    pub async fn next(&mut self) -> Option<T> {
        poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await
    }
}

impl<S: Stream + Unpin, T, F: FnMut(S::Item) -> T + Unpin> Stream for TypedStream<S, T, F> {
    type Item = T;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let typed = self.get_mut();
        Pin::new(&mut typed.stream).poll_next(context).map(|item| item.map(&mut typed.convert))
    }
}
