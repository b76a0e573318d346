//! Fields of any type, for tools that read keys whose type they do not know.

use std::fmt;

use crate::decoder::Int;
use crate::encoder::code;
use crate::{Decoder, Encoder, KeyError, ToKey, TypedKey};

/// A field of any type.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Element {
    /// The absent value.
    Null,
    /// Bytes.
    Bytes(Vec<u8>),
    /// Text.
    Text(String),
    /// A tuple.
    Tuple(Vec<Element>),
    /// An integer.
    Int(i128),
    /// An integer beyond those of `i128`.
    Uint(u128),
    /// A float of 32 bits.
    Float(f32),
    /// A float of 64 bits.
    Double(f64),
    /// A boolean.
    Bool(bool),
    /// A UUID.
    Uuid([u8; 16]),
}

/// The fields of a whole key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Elements(pub Vec<Element>);

impl ToKey for Element {
    const IS_NULLABLE: bool = true;

    fn encode(&self, out: &mut Encoder) {
        match self {
            Element::Null => out.null(),
            Element::Bytes(bytes) => out.bytes(bytes),
            Element::Text(text) => out.text(text),
            Element::Tuple(elements) => elements.encode(out),
            Element::Int(value) => out.int(*value),
            Element::Uint(value) => out.uint(*value),
            Element::Float(value) => out.float(*value),
            Element::Double(value) => out.double(*value),
            Element::Bool(value) => out.bool(*value),
            Element::Uuid(uuid) => out.uuid(uuid),
        }
    }
}

impl TypedKey for Element {
    fn decode(from: &mut Decoder<'_>) -> Result<Self, KeyError> {
        if from.null() {
            return Ok(Element::Null);
        }
        Ok(match from.code()? {
            code::BYTES => Element::Bytes(from.bytes()?),
            code::TEXT => Element::Text(from.text()?),
            code::TUPLE => Element::Tuple(Vec::decode(from)?),
            code::FLOAT => Element::Float(from.float()?),
            code::DOUBLE => Element::Double(from.double()?),
            code::FALSE | code::TRUE => Element::Bool(from.bool()?),
            code::UUID => Element::Uuid(from.uuid()?),
            code::NEGATIVE_LONG..=code::POSITIVE_LONG => {
                let Int { is_negative, magnitude } = from.number()?;
                match i128::try_from(magnitude) {
                    _ if is_negative => {
                        let value = 0_i128.checked_sub_unsigned(magnitude);
                        Element::Int(value.ok_or(KeyError::OutOfRange)?)
                    }
                    Ok(value) => Element::Int(value),
                    Err(_) => Element::Uint(magnitude),
                }
            }
            code => return Err(KeyError::Mismatch { expected: "of a known type", code }),
        })
    }
}

impl ToKey for Elements {
    fn encode(&self, out: &mut Encoder) {
        self.0.encode(out);
    }

    fn encode_fields(&self, out: &mut Encoder) {
        self.0.iter().for_each(|element| element.encode(out));
    }
}

impl TypedKey for Elements {
    fn decode(from: &mut Decoder<'_>) -> Result<Self, KeyError> {
        Vec::decode(from).map(Elements)
    }

    fn decode_fields(from: &mut Decoder<'_>) -> Result<Self, KeyError> {
        let mut elements = Vec::new();
        while !from.is_at_end() {
            elements.push(Element::decode(from)?);
        }
        Ok(Elements(elements))
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Element::Null => f.write_str("null"),
            Element::Bytes(bytes) => write!(f, "b\"{}\"", bytes.escape_ascii()),
            Element::Text(text) => write!(f, "{text:?}"),
            Element::Tuple(elements) => write_tuple(elements, f),
            Element::Int(value) => write!(f, "{value}"),
            Element::Uint(value) => write!(f, "{value}"),
            Element::Float(value) => write!(f, "{value:?}f32"),
            Element::Double(value) => write!(f, "{value:?}"),
            Element::Bool(value) => write!(f, "{value}"),
            Element::Uuid(uuid) => write!(f, "uuid {:032x}", u128::from_be_bytes(*uuid)),
        }
    }
}

impl fmt::Display for Elements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_tuple(&self.0, f)
    }
}

fn write_tuple(elements: &[Element], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str("(")?;
    for (n, element) in elements.iter().enumerate() {
        write!(f, "{}{element}", if n == 0 { "" } else { ", " })?;
    }
    f.write_str(")")
}
