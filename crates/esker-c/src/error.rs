//! `esker_error`: what went wrong, for people and for programs.

use std::ffi::{CString, c_char};
use std::mem::MaybeUninit;

use esker::Error;

use crate::call::set;
use crate::status::esker_status;

/// An error of a call. Free it with esker_error_free.
pub struct esker_error {
    error: Error,
    text: CString,
    file: Option<CString>,
}

impl esker_error {
    pub(crate) fn new(error: Error) -> esker_error {
        let text = c_string(error.to_string().into_bytes());
        let file = error.path().map(|path| c_string(path.as_os_str().as_encoded_bytes().to_vec()));
        esker_error { error, text, file }
    }
}

/// Makes a string for C. Zero bytes inside of it become spaces.
fn c_string(mut bytes: Vec<u8>) -> CString {
    bytes.iter_mut().filter(|byte| **byte == 0).for_each(|byte| *byte = b' ');
    CString::new(bytes).unwrap_or_default()
}

/// Returns the status that the call returned.
#[unsafe(no_mangle)]
pub extern "C" fn esker_error_status(error: Option<&esker_error>) -> esker_status {
    error.map_or(esker_status::ESKER_OK, |error| esker_status::of(&error.error))
}

/// Returns the message: what failed and what to do about it. It lives as long as the error.
#[unsafe(no_mangle)]
pub extern "C" fn esker_error_text(error: Option<&esker_error>) -> *const c_char {
    error.map_or(c"".as_ptr(), |error| error.text.as_ptr())
}

/// Returns the file or directory that the error is about, or NULL. It lives as long as the error.
#[unsafe(no_mangle)]
pub extern "C" fn esker_error_file(error: Option<&esker_error>) -> *const c_char {
    error.and_then(|error| error.file.as_ref()).map_or(std::ptr::null(), |file| file.as_ptr())
}

/// Sets `offset` to the position of damage in esker_error_file. Returns false if the error has none.
#[unsafe(no_mangle)]
pub extern "C" fn esker_error_offset(
    error: Option<&esker_error>,
    offset: Option<&mut MaybeUninit<u64>>,
) -> bool {
    let at = error.and_then(|error| error.error.offset());
    at.inspect(|at| set(offset, *at)).is_some()
}

/// Returns the number of the operating system's error (errno), or 0.
#[unsafe(no_mangle)]
pub extern "C" fn esker_error_errno(error: Option<&esker_error>) -> i32 {
    error.and_then(|error| error.error.errno()).unwrap_or(0)
}

/// Frees an error. NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn esker_error_free(error: Option<Box<esker_error>>) {
    drop(error);
}
