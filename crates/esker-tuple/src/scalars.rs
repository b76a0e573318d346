//! Keys of one value: numbers, booleans, text.

use crate::{Decoder, Encoder, KeyError, KeyOf, PrefixOf, ToKey, TypedKey};

/// A type whose only form as a key is itself.
macro_rules! is_itself {
    ($($type:ty),*) => {
        $(
            impl KeyOf<$type> for $type {}
            impl PrefixOf<$type> for $type {}
        )*
    };
}
pub(crate) use is_itself;

macro_rules! integers {
    ($method:ident, $wide:ty: $($type:ty),*) => {
        $(
            impl ToKey for $type {
                fn encode(&self, out: &mut Encoder) {
                    out.$method(*self as $wide);
                }
            }
            impl TypedKey for $type {
                fn decode(from: &mut Decoder<'_>) -> Result<Self, KeyError> {
                    from.$method()?.try_into().map_err(|_| KeyError::OutOfRange)
                }
            }
            is_itself!($type);
        )*
    };
}

integers!(int, i128: i8, i16, i32, i64, i128, isize);
integers!(uint, u128: u16, u32, u64, u128, usize);

impl ToKey for u8 {
    fn encode(&self, out: &mut Encoder) {
        out.uint((*self).into());
    }

    fn encode_list(items: &[Self], out: &mut Encoder) {
        out.bytes(items);
    }
}

impl TypedKey for u8 {
    fn decode(from: &mut Decoder<'_>) -> Result<Self, KeyError> {
        from.uint()?.try_into().map_err(|_| KeyError::OutOfRange)
    }

    fn decode_list(from: &mut Decoder<'_>) -> Result<Vec<Self>, KeyError> {
        from.bytes()
    }
}

macro_rules! values {
    ($($method:ident: $type:ty),*) => {
        $(
            impl ToKey for $type {
                fn encode(&self, out: &mut Encoder) {
                    out.$method(*self);
                }
            }
            impl TypedKey for $type {
                fn decode(from: &mut Decoder<'_>) -> Result<Self, KeyError> {
                    from.$method()
                }
            }
            is_itself!($type);
        )*
    };
}

values!(float: f32, double: f64, bool: bool);
is_itself!(u8, char, String);

/// Text of one character.
impl ToKey for char {
    fn encode(&self, out: &mut Encoder) {
        out.text(self.encode_utf8(&mut [0; 4]));
    }
}

impl TypedKey for char {
    fn decode(from: &mut Decoder<'_>) -> Result<Self, KeyError> {
        let text = from.text()?;
        let mut chars = text.chars();
        match (chars.next(), chars.next()) {
            (Some(only), None) => Ok(only),
            _ => Err(KeyError::OutOfRange),
        }
    }
}

impl ToKey for str {
    fn encode(&self, out: &mut Encoder) {
        out.text(self);
    }
}

impl ToKey for String {
    fn encode(&self, out: &mut Encoder) {
        out.text(self);
    }
}

impl TypedKey for String {
    fn decode(from: &mut Decoder<'_>) -> Result<Self, KeyError> {
        from.text()
    }
}

impl KeyOf<String> for str {}
impl PrefixOf<String> for str {}
