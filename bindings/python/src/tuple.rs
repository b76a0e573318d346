//! Keys of several fields, in the tuple encoding of FoundationDB (docs/formats/tuple.md).

use esker_tuple::{DEPTH_MAX, Element, Elements};
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyFloat, PyInt, PyList, PyString, PyTuple};

use crate::error::invalid;

/// A float of 32 bits in a key. Floats of Python have 64 bits.
#[pyclass(module = "esker", frozen, eq, hash)]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct SingleFloat {
    bits: u32,
}

#[pymethods]
impl SingleFloat {
    #[new]
    fn new(value: f64) -> SingleFloat {
        SingleFloat { bits: (value as f32).to_bits() }
    }

    /// The value.
    #[getter]
    fn value(&self) -> f64 {
        f32::from_bits(self.bits).into()
    }

    /// The bits of the value in IEEE form.
    #[getter]
    fn bits(&self) -> u32 {
        self.bits
    }

    /// Returns the float with these bits.
    #[staticmethod]
    fn from_bits(bits: u32) -> SingleFloat {
        SingleFloat { bits }
    }

    fn __float__(&self) -> f64 {
        self.value()
    }

    fn __repr__(&self) -> String {
        format!("SingleFloat({:?})", f32::from_bits(self.bits))
    }
}

fn elements(fields: impl Iterator<Item = PyResult<Element>>) -> PyResult<Vec<Element>> {
    fields.collect()
}

fn element(value: &Bound<'_, PyAny>, depth: u32) -> PyResult<Element> {
    if depth > DEPTH_MAX {
        return Err(invalid(value.py(), format!("tuples are nested more than {DEPTH_MAX} deep")));
    }
    // Booleans are integers as well, so they come first.
    Ok(if value.is_none() {
        Element::Null
    } else if let Ok(value) = value.cast::<PyBool>() {
        Element::Bool(value.is_true())
    } else if value.is_instance_of::<PyInt>() {
        let too_large = || PyOverflowError::new_err("an integer in a key has at most 128 bits");
        match value.extract::<i128>() {
            Ok(value) => Element::Int(value),
            Err(_) => Element::Uint(value.extract::<u128>().map_err(|_| too_large())?),
        }
    } else if value.is_instance_of::<PyFloat>() {
        Element::Double(value.extract()?)
    } else if value.is_instance_of::<PyString>() {
        Element::Text(value.extract()?)
    } else if let Ok(bytes) = value.cast::<PyBytes>() {
        Element::Bytes(bytes.as_bytes().to_vec())
    } else if let Ok(bytes) = value.cast::<PyByteArray>() {
        Element::Bytes(bytes.to_vec())
    } else if let Ok(value) = value.cast::<SingleFloat>() {
        Element::Float(f32::from_bits(value.get().bits))
    } else if let Ok(fields) = value.cast::<PyTuple>() {
        Element::Tuple(elements(fields.iter().map(|field| element(&field, depth + 1)))?)
    } else if let Ok(fields) = value.cast::<PyList>() {
        Element::Tuple(elements(fields.iter().map(|field| element(&field, depth + 1)))?)
    } else {
        return other(value);
    })
}

/// A UUID, or nothing that a key can hold.
fn other(value: &Bound<'_, PyAny>) -> PyResult<Element> {
    let uuid = value.py().import("uuid")?.getattr("UUID")?;
    if value.is_instance(&uuid)? {
        return Ok(Element::Uuid(value.getattr("bytes")?.extract()?));
    }
    let kind = value.get_type().name()?;
    Err(PyTypeError::new_err(format!("a field of a key cannot be of type {kind}")))
}

fn to_python<'py>(py: Python<'py>, element: &Element) -> PyResult<Bound<'py, PyAny>> {
    Ok(match element {
        Element::Null => py.None().into_bound(py),
        Element::Bytes(bytes) => PyBytes::new(py, bytes).into_any(),
        Element::Text(text) => PyString::new(py, text).into_any(),
        Element::Tuple(fields) => fields_of(py, fields)?.into_any(),
        Element::Int(value) => value.into_pyobject(py)?.into_any(),
        Element::Uint(value) => value.into_pyobject(py)?.into_any(),
        Element::Float(value) => SingleFloat { bits: value.to_bits() }.into_pyobject(py)?.into_any(),
        Element::Double(value) => PyFloat::new(py, *value).into_any(),
        Element::Bool(value) => PyBool::new(py, *value).to_owned().into_any(),
        Element::Uuid(bytes) => {
            let uuid = py.import("uuid")?.getattr("UUID")?;
            uuid.call1((py.None(), PyBytes::new(py, bytes)))?
        }
        _ => return Err(invalid(py, "the key has a field of an unknown kind")),
    })
}

fn fields_of<'py>(py: Python<'py>, fields: &[Element]) -> PyResult<Bound<'py, PyTuple>> {
    let fields = fields.iter().map(|field| to_python(py, field)).collect::<PyResult<Vec<_>>>()?;
    PyTuple::new(py, fields)
}

/// Encodes a tuple as a key. Keys sort in the order of their fields.
#[pyfunction]
pub(crate) fn pack<'py>(fields: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    let py = fields.py();
    let fields = match (fields.cast::<PyTuple>(), fields.cast::<PyList>()) {
        (Ok(fields), _) => elements(fields.iter().map(|field| element(&field, 1)))?,
        (_, Ok(fields)) => elements(fields.iter().map(|field| element(&field, 1)))?,
        _ => return Err(PyTypeError::new_err("pack takes a tuple")),
    };
    let key = esker_tuple::encode(&Elements(fields)).map_err(|error| invalid(py, error.to_string()))?;
    Ok(PyBytes::new(py, &key))
}

/// Decodes a key. Raises `esker.Invalid` if the bytes are no tuple.
#[pyfunction]
pub(crate) fn unpack<'py>(py: Python<'py>, key: crate::data::Data) -> PyResult<Bound<'py, PyTuple>> {
    let fields: Elements = esker_tuple::decode(&key).map_err(|error| invalid(py, error.to_string()))?;
    fields_of(py, &fields.0)
}

/// Returns the first key that begins with these fields, and the first key behind those.
#[pyfunction]
pub(crate) fn prefix_range<'py>(
    fields: &Bound<'py, PyTuple>,
) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
    let py = fields.py();
    let fields = elements(fields.iter().map(|field| element(&field, 1)))?;
    let (start, end) =
        esker_tuple::prefix_range(&Elements(fields)).map_err(|error| invalid(py, error.to_string()))?;
    Ok((PyBytes::new(py, &start), PyBytes::new(py, &end)))
}
