//! The traits of keys.

use crate::{Decoder, Encoder, KeyError};

/// What can be encoded as a key, owned or borrowed.
pub trait ToKey {
    /// Whether a value of this type may be stored as null.
    #[doc(hidden)]
    const IS_NULLABLE: bool = false;

    /// Appends it as one field.
    fn encode(&self, out: &mut Encoder);

    /// Appends it as a whole key. A tuple or struct appends its fields, anything else is the only field.
    fn encode_fields(&self, out: &mut Encoder) {
        self.encode(out);
    }

    /// Appends several as one field. Bytes are not a tuple of numbers.
    #[doc(hidden)]
    fn encode_list(items: &[Self], out: &mut Encoder)
    where
        Self: Sized,
    {
        out.tuple(|out| items.iter().for_each(|item| item.encode(out)));
    }
}

/// A key, or a field of one. Derive it for structs and enums.
///
/// - A struct is the tuple of its fields, in the order of their declaration. A struct with one unnamed field
///   is that field.
/// - An enum without fields is an integer: the discriminants of its variants. Any other enum is the tuple of
///   the position of its variant (0 for the first) and the fields. Add variants at the end.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a key",
    note = "add `#[derive(TypedKey)]` to a struct or enum; floats, integers, `bool`, `char`, `String`, `Vec`, arrays, `Option`s and tuples of them are keys"
)]
pub trait TypedKey: ToKey + Sized {
    /// Reads it as one field.
    ///
    /// # Errors
    /// [`KeyError`].
    fn decode(from: &mut Decoder<'_>) -> Result<Self, KeyError>;

    /// Reads it as a whole key.
    ///
    /// # Errors
    /// [`KeyError`].
    fn decode_fields(from: &mut Decoder<'_>) -> Result<Self, KeyError> {
        Self::decode(from)
    }

    /// Reads several from one field.
    #[doc(hidden)]
    fn decode_list(from: &mut Decoder<'_>) -> Result<Vec<Self>, KeyError> {
        from.tuple(|from| {
            let mut items = Vec::new();
            while !from.is_at_end() {
                items.push(Self::decode(from)?);
            }
            Ok(items)
        })
    }
}

/// A form of the key `K`, owned or borrowed, that is encoded in the same bytes: `&str` and `String` for
/// `String`, `(u64, &str)` for `(u64, String)`, a tuple of its fields for a struct.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a form of the key `{K}`",
    note = "all fields are necessary, in the types of the key or borrowed, as in `(7, \"a\")` for `(u64, String)`"
)]
pub trait KeyOf<K: ?Sized>: ToKey {}

/// The leading fields of the key `K`, as a tuple, or all of them: `(7,)` and `(7, "a")` for `(u64, String)`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the leading fields of the key `{K}`",
    note = "write the first field or fields as a tuple: `(7,)` for all keys `(7, _)`"
)]
pub trait PrefixOf<K: ?Sized>: ToKey {}

impl<T: ToKey + ?Sized> ToKey for &T {
    const IS_NULLABLE: bool = T::IS_NULLABLE;

    fn encode(&self, out: &mut Encoder) {
        (**self).encode(out);
    }

    fn encode_fields(&self, out: &mut Encoder) {
        (**self).encode_fields(out);
    }
}

impl<K: ?Sized, Q: KeyOf<K> + ?Sized> KeyOf<K> for &Q {}
impl<K: ?Sized, Q: PrefixOf<K> + ?Sized> PrefixOf<K> for &Q {}
