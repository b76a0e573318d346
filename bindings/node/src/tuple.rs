//! Tuples: keys of several fields, in the encoding of `esker-tuple`.
//!
//! | field | in JavaScript |
//! |---|---|
//! | null, text, boolean | `null`, `string`, `boolean` |
//! | integer | `bigint` |
//! | bytes | `Uint8Array` |
//! | tuple | `Array` |
//! | float, double, UUID | `{ tag, bytes }`, the bytes big-endian |
//!
//! lib/tuple.js makes numbers and its own classes of them.

use esker_tuple::{Element, Elements, KeyError};
use napi::ValueType;
use napi::bindgen_prelude::{
    Array, BigInt, BufferSlice, Env, FromNapiValue, JsObjectValue, JsValue, Null, Object, ToNapiValue,
    Unknown,
};
use napi_derive::napi;

use crate::completion::buffer;
use crate::error::Failure;

const TAG_FLOAT: u32 = 4;
const TAG_DOUBLE: u32 = 8;
const TAG_UUID: u32 = 16;

fn no_tuple(error: KeyError) -> Failure {
    Failure::invalid(format!("this is no tuple: {error}"))
}

/// Encodes fields.
#[napi(catch_unwind)]
pub fn pack_tuple<'env>(env: &'env Env, fields: Array<'_>) -> napi::Result<Unknown<'env>> {
    let elements = elements_of(env, &fields, 0)?;
    match esker_tuple::encode(&Elements(elements)) {
        Ok(bytes) => buffer(env, &bytes),
        Err(error) => Err(no_tuple(error).thrown(env)),
    }
}

/// Decodes a key.
#[napi(catch_unwind)]
pub fn unpack_tuple<'env>(env: &'env Env, key: &[u8]) -> napi::Result<Array<'env>> {
    let elements: Elements = esker_tuple::decode(key).map_err(|error| no_tuple(error).thrown(env))?;
    fields_of(env, &elements.0)
}

fn elements_of(env: &Env, fields: &Array<'_>, depth: u32) -> napi::Result<Vec<Element>> {
    if depth > esker_tuple::DEPTH_MAX {
        return Err(no_tuple(KeyError::TooDeep).thrown(env));
    }
    let field = |at| match fields.get::<Unknown<'_>>(at)? {
        Some(field) => element(env, field, depth),
        None => Err(Failure::invalid("the tuple has become shorter").thrown(env)),
    };
    (0..fields.len()).map(field).collect()
}

fn element(env: &Env, field: Unknown<'_>, depth: u32) -> napi::Result<Element> {
    let invalid = |what: &str| Failure::invalid(what).thrown(env);
    Ok(match field.get_type()? {
        ValueType::Null => Element::Null,
        ValueType::String => Element::Text(String::from_unknown(field)?),
        ValueType::Boolean => Element::Bool(bool::from_unknown(field)?),
        ValueType::BigInt => {
            let (value, is_exact) = BigInt::from_unknown(field)?.get_i128();
            if !is_exact || value < i64::MIN.into() || value > u64::MAX.into() {
                return Err(invalid("the integer does not fit into 64 bits"));
            }
            Element::Int(value)
        }
        ValueType::Object if field.is_array()? => {
            Element::Tuple(elements_of(env, &Array::from_unknown(field)?, depth + 1)?)
        }
        ValueType::Object if field.is_typedarray()? => {
            Element::Bytes(BufferSlice::from_unknown(field)?.to_vec())
        }
        ValueType::Object => tagged(env, &Object::from_unknown(field)?)?,
        other => return Err(invalid(&format!("a field of a tuple cannot be of type {other}"))),
    })
}

fn tagged(env: &Env, field: &Object<'_>) -> napi::Result<Element> {
    let tag: u32 = field.get_named_property("tag")?;
    let bytes: BufferSlice<'_> = field.get_named_property("bytes")?;
    let wrong = |_| Failure::invalid("a float, double or UUID has another number of bytes").thrown(env);
    Ok(match tag {
        TAG_FLOAT => Element::Float(f32::from_be_bytes((&*bytes).try_into().map_err(wrong)?)),
        TAG_DOUBLE => Element::Double(f64::from_be_bytes((&*bytes).try_into().map_err(wrong)?)),
        TAG_UUID => Element::Uuid((&*bytes).try_into().map_err(wrong)?),
        _ => return Err(Failure::invalid("this object is no field of a tuple").thrown(env)),
    })
}

fn fields_of<'env>(env: &'env Env, elements: &[Element]) -> napi::Result<Array<'env>> {
    let mut fields = env.create_array(0)?;
    for element in elements {
        fields.insert(field_of(env, element)?)?;
    }
    Ok(fields)
}

fn field_of<'env>(env: &'env Env, element: &Element) -> napi::Result<Unknown<'env>> {
    let with_tag = |tag: u32, bytes: &[u8]| {
        let mut field = Object::new(env)?;
        field.set("tag", tag)?;
        field.set("bytes", buffer(env, bytes)?)?;
        Ok(field.to_unknown())
    };
    match element {
        Element::Null => Null.into_unknown(env),
        Element::Bytes(bytes) => buffer(env, bytes),
        Element::Text(text) => text.as_str().into_unknown(env),
        Element::Tuple(elements) => Ok(fields_of(env, elements)?.to_unknown()),
        Element::Int(value) => BigInt::from(*value).into_unknown(env),
        Element::Float(value) => with_tag(TAG_FLOAT, &value.to_be_bytes()),
        Element::Double(value) => with_tag(TAG_DOUBLE, &value.to_be_bytes()),
        Element::Bool(value) => value.into_unknown(env),
        Element::Uuid(bytes) => with_tag(TAG_UUID, bytes),
        _ => Err(Failure::invalid("the key has an integer beyond 128 bits").thrown(env)),
    }
}
