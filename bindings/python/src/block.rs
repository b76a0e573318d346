//! `memoryview`s of values: an object of a class without a name in Python owns the value, and lends its
//! bytes.
//!
//! ```text
//!   memoryview --obj--> Block --Value--> bytes in a cached block
//! ```
//!
//! PyO3 offers buffers from version 3.11 of the stable interface on. For Python 3.10 this class is made by
//! hand: the slot `Py_bf_getbuffer` and the layout of `Py_buffer` are the same in 3.10 as in the stable
//! interface of 3.11.
//!
//! block.1. A `Block` holds a value from its making to `dealloc`: Python code can neither make nor change
//! one.
#![expect(unsafe_code, reason = "a class with a buffer needs the C interface of Python")]

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::mem::ManuallyDrop;
use std::ptr;

use esker::Value;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use pyo3::{Py, ffi};

/// Number of the slot in `typeslots.h`.
const BF_GETBUFFER: c_int = 1;
const DISALLOW_INSTANTIATION: c_uint = 1 << 7;
const BUF_WRITABLE: c_int = 1;
const BUF_FORMAT: c_int = 4;
const BUF_ND: c_int = 8;
const BUF_STRIDES: c_int = 0x10 | BUF_ND;

#[repr(C)]
struct Block {
    head: ffi::PyObject,
    value: ManuallyDrop<Value>,
    /// The length, where `Py_buffer` can point to it.
    len: ffi::Py_ssize_t,
}

/// `Py_buffer` of the stable interface.
#[repr(C)]
struct Buffer {
    buf: *mut c_void,
    obj: *mut ffi::PyObject,
    len: ffi::Py_ssize_t,
    itemsize: ffi::Py_ssize_t,
    readonly: c_int,
    ndim: c_int,
    format: *mut c_char,
    shape: *mut ffi::Py_ssize_t,
    strides: *mut ffi::Py_ssize_t,
    suboffsets: *mut ffi::Py_ssize_t,
    internal: *mut c_void,
}

static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();

unsafe extern "C" fn dealloc(object: *mut ffi::PyObject) {
    // SAFETY: Python calls this once, for an object of this class, which holds a value (block.1). Objects of
    // classes made from a specification own a reference to their class.
    unsafe {
        let class = ffi::Py_TYPE(object);
        ManuallyDrop::drop(&mut (*object.cast::<Block>()).value);
        let free = ffi::PyType_GetSlot(class, ffi::Py_tp_free);
        let free: unsafe extern "C" fn(*mut c_void) = std::mem::transmute(free);
        free(object.cast());
        ffi::Py_DECREF(class.cast());
    }
}

unsafe extern "C" fn getbuffer(object: *mut ffi::PyObject, buffer: *mut Buffer, flags: c_int) -> c_int {
    // SAFETY: Python passes an object of this class, which holds a value (block.1), and a buffer to fill. The
    // bytes stay where they are while the value lives (value.1), and the buffer keeps the object alive.
    unsafe {
        if flags & BUF_WRITABLE != 0 {
            (*buffer).obj = ptr::null_mut();
            ffi::PyErr_SetString(ffi::PyExc_BufferError, c"values of the database are read-only".as_ptr());
            return -1;
        }
        let block = object.cast::<Block>();
        ffi::Py_INCREF(object);
        let has = |flag: c_int| flags & flag == flag;
        let itemsize = ptr::addr_of_mut!((*buffer).itemsize);
        buffer.write(Buffer {
            buf: (*block).value.as_ptr().cast_mut().cast(),
            obj: object,
            len: (*block).len,
            itemsize: 1,
            readonly: 1,
            ndim: 1,
            format: if has(BUF_FORMAT) { c"B".as_ptr().cast_mut() } else { ptr::null_mut() },
            shape: if has(BUF_ND) { ptr::addr_of_mut!((*block).len) } else { ptr::null_mut() },
            strides: if has(BUF_STRIDES) { itemsize } else { ptr::null_mut() },
            suboffsets: ptr::null_mut(),
            internal: ptr::null_mut(),
        });
        0
    }
}

fn class(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    let class = CLASS.get_or_try_init(py, || {
        let mut slots = [
            ffi::PyType_Slot { slot: ffi::Py_tp_dealloc, pfunc: dealloc as *mut c_void },
            ffi::PyType_Slot { slot: BF_GETBUFFER, pfunc: getbuffer as *mut c_void },
            ffi::PyType_Slot { slot: 0, pfunc: ptr::null_mut() },
        ];
        let mut spec = ffi::PyType_Spec {
            name: c"esker._esker.Block".as_ptr(),
            basicsize: size_of::<Block>() as c_int,
            itemsize: 0,
            flags: ffi::Py_TPFLAGS_DEFAULT as c_uint | DISALLOW_INSTANTIATION,
            slots: slots.as_mut_ptr(),
        };
        // SAFETY: the specification describes the class; Python copies it, except the name, which is static.
        let made = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyType_FromSpec(&raw mut spec)) }?;
        Ok::<_, PyErr>(made.cast_into::<PyType>()?.unbind())
    })?;
    Ok(class.bind(py))
}

/// Makes a memoryview of a value.
pub(crate) fn memoryview(py: Python<'_>, value: Value) -> PyResult<Bound<'_, PyAny>> {
    let class = class(py)?.as_type_ptr();
    // SAFETY: the allocation has the size of `Block` and a valid head; the other fields are written before
    // any other code sees the object.
    let block = unsafe {
        let object = Bound::from_owned_ptr_or_err(py, ffi::PyType_GenericAlloc(class, 0))?;
        let block = object.as_ptr().cast::<Block>();
        ptr::addr_of_mut!((*block).len).write(value.len() as ffi::Py_ssize_t);
        ptr::addr_of_mut!((*block).value).write(ManuallyDrop::new(value));
        object
    };
    // SAFETY: a call of Python with an object that lives.
    unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyMemoryView_FromObject(block.as_ptr())) }
}
