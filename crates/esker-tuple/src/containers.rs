//! Keys that hold others: options, lists, bytes, reversed fields; and UUIDs.

use std::cmp::Ordering;

use crate::scalars::is_itself;
use crate::{Decoder, Encoder, KeyError, KeyOf, PrefixOf, ToKey, TypedKey};

/// `None` is null, and sorts first. `Some` is its value; a value that may be null itself is wrapped in a
/// tuple.
impl<T: ToKey> ToKey for Option<T> {
    const IS_NULLABLE: bool = true;

    fn encode(&self, out: &mut Encoder) {
        match self {
            None => out.null(),
            Some(value) if T::IS_NULLABLE => out.tuple(|out| value.encode(out)),
            Some(value) => value.encode(out),
        }
    }
}

impl<T: TypedKey> TypedKey for Option<T> {
    fn decode(from: &mut Decoder<'_>) -> Result<Self, KeyError> {
        if from.null() {
            return Ok(None);
        }
        if T::IS_NULLABLE { from.tuple(T::decode) } else { T::decode(from) }.map(Some)
    }
}

impl<K, Q: KeyOf<K>> KeyOf<Option<K>> for Option<Q> {}
impl<K, Q: KeyOf<K>> PrefixOf<Option<K>> for Option<Q> {}

impl<T: ToKey + ?Sized> ToKey for Box<T> {
    const IS_NULLABLE: bool = T::IS_NULLABLE;

    fn encode(&self, out: &mut Encoder) {
        (**self).encode(out);
    }
}

impl<T: TypedKey> TypedKey for Box<T> {
    fn decode(from: &mut Decoder<'_>) -> Result<Self, KeyError> {
        T::decode(from).map(Box::new)
    }
}

impl<K, Q: KeyOf<K>> KeyOf<Box<K>> for Box<Q> {}

/// Bytes if the items are bytes, else a tuple.
impl<T: ToKey> ToKey for [T] {
    fn encode(&self, out: &mut Encoder) {
        T::encode_list(self, out);
    }
}

/// Same as a slice.
impl<T: ToKey> ToKey for Vec<T> {
    fn encode(&self, out: &mut Encoder) {
        T::encode_list(self, out);
    }
}

/// Same as a slice.
impl<T: ToKey, const N: usize> ToKey for [T; N] {
    fn encode(&self, out: &mut Encoder) {
        T::encode_list(self, out);
    }
}

impl<T: TypedKey> TypedKey for Vec<T> {
    fn decode(from: &mut Decoder<'_>) -> Result<Self, KeyError> {
        T::decode_list(from)
    }
}

impl<T: TypedKey, const N: usize> TypedKey for [T; N] {
    fn decode(from: &mut Decoder<'_>) -> Result<Self, KeyError> {
        T::decode_list(from)?.try_into().map_err(|_| KeyError::OutOfRange)
    }
}

macro_rules! lists {
    ($([$($generics:tt)*] $of:ty: $form:ty;)*) => {
        $(
            impl<T: ToKey, $($generics)*> KeyOf<$of> for $form {}
            impl<T: ToKey, $($generics)*> PrefixOf<$of> for $form {}
        )*
    };
}

lists! {
    [] Vec<T>: Vec<T>;
    [] Vec<T>: [T];
    [const N: usize] Vec<T>: [T; N];
    [const N: usize] [T; N]: [T; N];
}

/// A field in reverse order. It is stored as bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Descending<T>(pub T);

impl<T: Ord> Ord for Descending<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.0.cmp(&self.0)
    }
}

impl<T: PartialOrd> PartialOrd for Descending<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        other.0.partial_cmp(&self.0)
    }
}

impl<T: ToKey> ToKey for Descending<T> {
    fn encode(&self, out: &mut Encoder) {
        out.descending(|out| self.0.encode(out));
    }
}

impl<T: TypedKey> TypedKey for Descending<T> {
    fn decode(from: &mut Decoder<'_>) -> Result<Self, KeyError> {
        from.descending(|from| T::decode(from)).map(Descending)
    }
}

impl<K, Q: KeyOf<K>> KeyOf<Descending<K>> for Descending<Q> {}
impl<K, Q: KeyOf<K>> PrefixOf<Descending<K>> for Descending<Q> {}

/// A UUID, in network byte order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(pub [u8; 16]);

impl ToKey for Uuid {
    fn encode(&self, out: &mut Encoder) {
        out.uuid(&self.0);
    }
}

impl TypedKey for Uuid {
    fn decode(from: &mut Decoder<'_>) -> Result<Self, KeyError> {
        from.uuid().map(Uuid)
    }
}

is_itself!(Uuid);
