//! `esker_tuple`: keys of several fields, in the tuple encoding of FoundationDB.
//!
//! Encoded tuples are in the order of their fields, and programs in all languages read them
//! (docs/formats/tuple.md).

use std::mem::MaybeUninit;

use ::esker_tuple::{Element, Elements};

use crate::call::{ErrorPlace, Failure, call, given, set};
use crate::slice::{esker_owner, esker_slice, esker_value};
use crate::status::esker_status::{self, ESKER_NOT_FOUND};

/// The absent value.
pub const ESKER_FIELD_NULL: u32 = 0;
/// Bytes, in `bytes`.
pub const ESKER_FIELD_BYTES: u32 = 1;
/// UTF-8 text, in `bytes`.
pub const ESKER_FIELD_TEXT: u32 = 2;
/// A tuple, encoded in `bytes`: see esker_tuple_unpack.
pub const ESKER_FIELD_TUPLE: u32 = 3;
/// An integer, in `integer`.
pub const ESKER_FIELD_INT: u32 = 4;
/// An integer from 2^63 to 2^64 - 1, in `integer` as its bits.
pub const ESKER_FIELD_UINT: u32 = 5;
/// A float of 32 bits, in `number`.
pub const ESKER_FIELD_FLOAT: u32 = 6;
/// A float of 64 bits, in `number`.
pub const ESKER_FIELD_DOUBLE: u32 = 7;
/// A boolean: `integer` is 0 or 1.
pub const ESKER_FIELD_BOOL: u32 = 8;
/// A UUID: 16 bytes, in `bytes`.
pub const ESKER_FIELD_UUID: u32 = 9;

/// A field of a tuple.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct esker_field<'a> {
    /// ESKER_FIELD_...
    kind: u32,
    /// Bytes, text, an encoded tuple, a UUID.
    bytes: esker_slice<'a>,
    /// An integer or a boolean.
    integer: i64,
    /// A float.
    number: f64,
}

/// The fields of a key. One thread at a time may use it. Free it with esker_tuple_free.
#[derive(Default)]
pub struct esker_tuple {
    fields: Vec<Element>,
    /// Encoded forms of fields that are tuples, while they are lent.
    lent: Vec<u8>,
}

/// Makes a tuple without fields.
#[unsafe(no_mangle)]
pub extern "C" fn esker_tuple_new() -> Option<Box<esker_tuple>> {
    Some(Box::default())
}

/// Frees a tuple. NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn esker_tuple_free(tuple: Option<Box<esker_tuple>>) {
    drop(tuple);
}

/// Appends a field to a tuple. The kind of the field says which other member is used; the rest are ignored.
#[unsafe(no_mangle)]
pub extern "C" fn esker_tuple_add(
    tuple: Option<&mut esker_tuple>,
    field: esker_field<'_>,
    error: ErrorPlace<'_>,
) -> esker_status {
    call(error, || {
        given(tuple, "tuple")?.fields.push(element(&field)?);
        Ok(())
    })
}

fn element(field: &esker_field<'_>) -> Result<Element, Failure> {
    Ok(match field.kind {
        ESKER_FIELD_NULL => Element::Null,
        ESKER_FIELD_BYTES => Element::Bytes(field.bytes.bytes()?.to_vec()),
        ESKER_FIELD_TEXT => Element::Text(
            String::from_utf8(field.bytes.bytes()?.to_vec())
                .map_err(|_| Failure::invalid("the text is not UTF-8"))?,
        ),
        ESKER_FIELD_TUPLE => Element::Tuple(decoded(field.bytes.bytes()?)?),
        ESKER_FIELD_INT => Element::Int(field.integer.into()),
        ESKER_FIELD_UINT => Element::Int(field.integer.cast_unsigned().into()),
        ESKER_FIELD_FLOAT => Element::Float(narrowed(field.number)),
        ESKER_FIELD_DOUBLE => Element::Double(field.number),
        ESKER_FIELD_BOOL => Element::Bool(field.integer != 0),
        ESKER_FIELD_UUID => Element::Uuid(
            <[u8; 16]>::try_from(field.bytes.bytes()?)
                .map_err(|_| Failure::invalid("a UUID has 16 bytes"))?,
        ),
        other => return Err(Failure::invalid(format!("{other} is no kind of field"))),
    })
}

fn decoded(bytes: &[u8]) -> Result<Vec<Element>, Failure> {
    let elements: Elements = ::esker_tuple::decode(bytes)
        .map_err(|error| Failure::invalid(format!("this is no tuple: {error}")))?;
    Ok(elements.0)
}

fn encoded(fields: Vec<Element>) -> Result<Vec<u8>, Failure> {
    ::esker_tuple::encode(&Elements(fields)).map_err(|error| Failure::invalid(error.to_string()))
}

/// Sets `key` to the encoded tuple. Free it with esker_value_free.
#[unsafe(no_mangle)]
pub extern "C" fn esker_tuple_pack(
    tuple: Option<&esker_tuple>,
    key: Option<&mut MaybeUninit<esker_value>>,
    error: ErrorPlace<'_>,
) -> esker_status {
    call(error, || {
        let bytes = encoded(given(tuple, "tuple")?.fields.clone())?;
        given(key, "key")?.write(esker_value::new(esker_owner::Bytes(bytes)));
        Ok(())
    })
}

/// Decodes a key. ESKER_INVALID: it is no encoded tuple.
#[unsafe(no_mangle)]
pub extern "C" fn esker_tuple_unpack(
    key: esker_slice<'_>,
    tuple: Option<&mut MaybeUninit<Option<Box<esker_tuple>>>>,
    error: ErrorPlace<'_>,
) -> esker_status {
    call(error, || {
        let fields = decoded(key.bytes()?)?;
        given(tuple, "tuple")?.write(Some(Box::new(esker_tuple { fields, lent: Vec::new() })));
        Ok(())
    })
}

/// Returns the number of fields.
#[unsafe(no_mangle)]
pub extern "C" fn esker_tuple_size(tuple: Option<&esker_tuple>) -> usize {
    tuple.map_or(0, |tuple| tuple.fields.len())
}

/// Sets `field` to a field of a tuple, the first has the number 0. What it points to is valid until the next
/// call for this tuple. ESKER_NOT_FOUND: there are fewer fields.
#[unsafe(no_mangle)]
pub extern "C" fn esker_tuple_get<'a>(
    tuple: Option<&'a mut esker_tuple>,
    at: usize,
    field: Option<&mut MaybeUninit<esker_field<'a>>>,
    error: ErrorPlace<'_>,
) -> esker_status {
    call(error, || {
        let tuple = given(tuple, "tuple")?;
        let element = tuple.fields.get(at).ok_or(Failure::Status(ESKER_NOT_FOUND))?;
        if let Element::Tuple(fields) = element {
            tuple.lent = encoded(fields.clone())?;
        }
        set(field, lend(element, &tuple.lent)?);
        Ok(())
    })
}

fn lend<'a>(element: &'a Element, lent: &'a [u8]) -> Result<esker_field<'a>, Failure> {
    let field = |kind| esker_field { kind, bytes: esker_slice::null(), integer: 0, number: 0.0 };
    let bytes = |kind, bytes| esker_field { bytes: esker_slice::of(bytes), ..field(kind) };
    let too_large = || Failure::invalid("the integer does not fit into 64 bits");
    Ok(match element {
        Element::Null => field(ESKER_FIELD_NULL),
        Element::Bytes(of) => bytes(ESKER_FIELD_BYTES, of),
        Element::Text(of) => bytes(ESKER_FIELD_TEXT, of.as_bytes()),
        Element::Tuple(_) => bytes(ESKER_FIELD_TUPLE, lent),
        Element::Uuid(of) => bytes(ESKER_FIELD_UUID, of),
        Element::Int(of) => match (i64::try_from(*of), u64::try_from(*of)) {
            (Ok(integer), _) => esker_field { integer, ..field(ESKER_FIELD_INT) },
            (_, Ok(of)) => esker_field { integer: of.cast_signed(), ..field(ESKER_FIELD_UINT) },
            _ => return Err(too_large()),
        },
        Element::Float(of) => esker_field { number: widened(*of), ..field(ESKER_FIELD_FLOAT) },
        Element::Double(of) => esker_field { number: *of, ..field(ESKER_FIELD_DOUBLE) },
        Element::Bool(of) => esker_field { integer: i64::from(*of), ..field(ESKER_FIELD_BOOL) },
        _ => return Err(too_large()),
    })
}

/// Bits of a fraction that a float of 64 bits has and one of 32 bits lacks.
const FRACTION_BITS_MORE: u32 = f64::MANTISSA_DIGITS - f32::MANTISSA_DIGITS;
/// The bit that makes a NaN of 32 bits a quiet one.
const QUIET: u32 = 1 << (f32::MANTISSA_DIGITS - 2);

/// Returns the same number. A conversion by the processor would make a signalling NaN a quiet one, which is
/// another key.
fn widened(number: f32) -> f64 {
    if !number.is_nan() {
        return number.into();
    }
    let bits = number.to_bits();
    let sign = u64::from(bits >> 31) << 63;
    let fraction = u64::from(bits & ((1 << (f32::MANTISSA_DIGITS - 1)) - 1)) << FRACTION_BITS_MORE;
    f64::from_bits(sign | f64::INFINITY.to_bits() | fraction)
}

/// Returns the nearest number of 32 bits. What [`widened`] has made becomes what it was.
fn narrowed(number: f64) -> f32 {
    if !number.is_nan() {
        return number as f32;
    }
    let bits = number.to_bits();
    let sign = u32::try_from(bits >> 63).unwrap_or(1) << 31;
    let fraction = (bits & ((1 << (f64::MANTISSA_DIGITS - 1)) - 1)) >> FRACTION_BITS_MORE;
    // Without a fraction it would be infinite.
    let fraction = u32::try_from(fraction).ok().filter(|&fraction| fraction > 0).unwrap_or(QUIET);
    f32::from_bits(sign | f32::INFINITY.to_bits() | fraction)
}

#[cfg(test)]
mod tests {
    use super::{narrowed, widened};

    #[test]
    fn floats_of_32_bits_pass_unchanged() {
        let edges = [0, 1, 0x007f_ffff, 0x0080_0000, 0x3f80_0000, 0x7f7f_ffff, 0x7f80_0000];
        let nans = [0x7f80_0001, 0x7fa0_0001, 0x7fbf_ffff, 0x7fc0_0000, 0x7fff_ffff];
        for bits in edges.into_iter().chain(nans).flat_map(|bits| [bits, bits | 1 << 31]) {
            let number = f32::from_bits(bits);
            let wide = widened(number);
            assert_eq!(wide.is_nan(), number.is_nan());
            assert!(number.is_nan() || wide == f64::from(number));
            assert_eq!(narrowed(wide).to_bits(), bits, "{bits:x}");
        }
    }

    #[test]
    fn a_nan_with_a_longer_fraction_remains_a_nan() {
        for bits in [0x7ff0_0000_0000_0001, 0xfff0_0000_1fff_ffff] {
            let number = f64::from_bits(bits);
            assert!(narrowed(number).is_nan());
            assert_eq!(narrowed(number).is_sign_negative(), number.is_sign_negative());
        }
        assert_eq!(narrowed(0.1).to_bits(), 0.1_f32.to_bits());
    }
}
