//! Bytes that cross the border: those of the caller, which a call borrows, and values, which the caller gets.
//!
//! The only file with `unsafe` blocks. Its contracts are in the documentation of the C types.
#![expect(unsafe_code, reason = "reads and writes memory that the caller of the C API describes")]

use std::ffi::{CStr, c_char, c_void};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::path::Path;

use esker::Value;

use crate::call::Failure;

/// Bytes of the caller, borrowed for one call: `data` points to `len` bytes that nothing changes during the
/// call. `data` may be NULL if `len` is 0.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct esker_slice<'a> {
    /// The first byte.
    data: *const u8,
    /// Number of bytes.
    len: usize,
    /// Ties the slice to the call.
    call: PhantomData<&'a [u8]>,
}

impl<'a> esker_slice<'a> {
    /// A length without data is refused: the caller has run out of memory, and means neither the empty key
    /// nor a range without a bound.
    pub(crate) fn bytes(self) -> Result<&'a [u8], Failure> {
        if self.len == 0 {
            return Ok(&[]);
        }
        if self.data.is_null() {
            return Err(Failure::invalid(format!("the data of {} bytes is NULL", self.len)));
        }
        // SAFETY: only the caller of the C API makes these values, and promises `len` bytes at `data` that
        // stay unchanged during the call.
        Ok(unsafe { std::slice::from_raw_parts(self.data, self.len) })
    }

    /// A bound of a range. `None`: NULL, so there is no bound.
    pub(crate) fn bound(self) -> Result<Option<&'a [u8]>, Failure> {
        let bytes = self.bytes()?;
        Ok((!self.data.is_null()).then_some(bytes))
    }

    pub(crate) fn of(bytes: &'a [u8]) -> Self {
        esker_slice { data: bytes.as_ptr(), len: bytes.len(), call: PhantomData }
    }

    pub(crate) fn null() -> Self {
        esker_slice { data: std::ptr::null(), len: 0, call: PhantomData }
    }
}

/// A string of the caller that ends with a zero byte, borrowed for one call. UTF-8.
#[derive(Clone, Copy)]
pub(crate) struct Text<'a>(*const c_char, PhantomData<&'a CStr>);

impl<'a> Text<'a> {
    pub(crate) fn of(text: *const c_char) -> Self {
        Text(text, PhantomData)
    }

    fn bytes(self, what: &str) -> Result<&'a [u8], Failure> {
        if self.0.is_null() {
            return Err(Failure::invalid(format!("{what} is NULL")));
        }
        // SAFETY: the caller of the C API promises a string that ends with a zero byte and stays unchanged
        // during the call.
        Ok(unsafe { CStr::from_ptr(self.0) }.to_bytes())
    }

    pub(crate) fn text(self, what: &str) -> Result<&'a str, Failure> {
        std::str::from_utf8(self.bytes(what)?).map_err(|_| Failure::invalid(format!("{what} is not UTF-8")))
    }

    /// A path. On Unix it is any bytes.
    pub(crate) fn path(self, what: &str) -> Result<&'a Path, Failure> {
        #[cfg(unix)]
        {
            use std::os::unix::ffi::OsStrExt as _;
            Ok(Path::new(std::ffi::OsStr::from_bytes(self.bytes(what)?)))
        }
        #[cfg(not(unix))]
        Ok(Path::new(self.text(what)?))
    }
}

/// The slices of an array of the caller, borrowed for one call. NULL is an array without slices.
pub(crate) fn slices<'a>(
    first: Option<&'a esker_slice<'a>>,
    count: usize,
) -> Result<&'a [esker_slice<'a>], Failure> {
    match first {
        // SAFETY: the caller of the C API promises `count` slices from the first one.
        Some(first) => Ok(unsafe { std::slice::from_raw_parts(first, count) }),
        None if count == 0 => Ok(&[]),
        None => Err(Failure::invalid(format!("the array of {count} keys is NULL"))),
    }
}

/// Puts results into an array of the caller with as many places.
pub(crate) fn set_all<T>(first: Option<&mut MaybeUninit<T>>, results: impl ExactSizeIterator<Item = T>) {
    let Some(first) = first else { return };
    let first: *mut MaybeUninit<T> = first;
    for (at, result) in results.enumerate() {
        // SAFETY: the caller of the C API promises as many places as it asked for results.
        unsafe { first.add(at).write(MaybeUninit::new(result)) };
    }
}

/// Memory of the caller that a call fills.
#[repr(C)]
pub struct esker_buffer<'a> {
    /// The first byte. The bytes need no value.
    data: *mut u8,
    /// Number of bytes.
    len: usize,
    /// Ties the buffer to the call.
    call: PhantomData<&'a mut [u8]>,
}

impl<'a> esker_buffer<'a> {
    pub(crate) fn of(bytes: &'a mut [u8]) -> Self {
        esker_buffer { data: bytes.as_mut_ptr(), len: bytes.len(), call: PhantomData }
    }

    /// Returns whether this many bytes fit behind `at`.
    pub(crate) fn has_room(&self, at: usize, bytes: usize) -> bool {
        !self.data.is_null() && self.len.checked_sub(at).is_some_and(|room| bytes <= room)
    }

    /// Copies bytes to a place with [room](Self::has_room) for them, and returns the place after them.
    pub(crate) fn copy(&mut self, at: usize, bytes: &[u8]) -> usize {
        assert!(self.has_room(at, bytes.len()), "the caller of `copy` looks for room");
        // SAFETY: the place is inside of the buffer, which the caller of the C API lends for the call. Bytes
        // of a Rust value are never in it.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.data.add(at), bytes.len()) };
        at + bytes.len()
    }
}

/// The context of a function of the caller, for any thread.
#[derive(Clone, Copy)]
pub(crate) struct Shared(pub(crate) *mut c_void);

// SAFETY: the library never follows the pointer. The caller of the C API promises that its function may be
// called with it by any thread.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    pub(crate) fn pointer(self) -> *mut c_void {
        self.0
    }
}

/// Bytes that the library lends: `len` bytes at `data`, until esker_value_free.
///
/// `data` is NULL if there is no value. An empty value has a `data` that is not NULL.
#[repr(C)]
pub struct esker_value {
    /// The first byte.
    pub(crate) data: *const u8,
    /// Number of bytes.
    pub(crate) len: usize,
    /// What keeps the bytes alive.
    pub(crate) owner: Option<Box<esker_owner>>,
}

/// What keeps the bytes of an esker_value alive.
pub enum esker_owner {
    /// A value, which may point into a cached block.
    Value(Value),
    /// Bytes of their own.
    Bytes(Vec<u8>),
}

impl esker_value {
    pub(crate) const NONE: esker_value = esker_value { data: std::ptr::null(), len: 0, owner: None };

    pub(crate) fn new(owner: esker_owner) -> esker_value {
        let owner = Box::new(owner);
        let bytes: &[u8] = match &*owner {
            esker_owner::Value(value) => value,
            esker_owner::Bytes(bytes) => bytes,
        };
        // Taken from the box, so that the bytes stay where they are when the struct is copied.
        esker_value { data: bytes.as_ptr(), len: bytes.len(), owner: Some(owner) }
    }

    pub(crate) fn of(value: Option<Value>) -> esker_value {
        value.map_or(Self::NONE, |value| Self::new(esker_owner::Value(value)))
    }
}

/// Gives a value back. Its bytes must not be used afterwards. NULL and a value given back are allowed.
#[unsafe(no_mangle)]
pub extern "C" fn esker_value_free(value: Option<&mut esker_value>) {
    if let Some(value) = value {
        *value = esker_value::NONE;
    }
}
