//! `esker_options`: how a database is opened.

use std::ffi::{c_char, c_void};
use std::path::PathBuf;
use std::time::Duration;

use esker::{Blobs, Builder, Db, Durability, Isolation, TableCompression};

use crate::call::{ErrorPlace, Failure, call, given};
use crate::slice::{Shared, Text, esker_buffer, esker_slice};
use crate::status::esker_status;

/// When a commit is acknowledged: the default of the database.
pub const ESKER_DURABILITY_DEFAULT: u32 = 0;
/// A commit waits until it is on the disk.
pub const ESKER_DURABILITY_SYNC: u32 = 1;
/// A commit waits until the operating system has it: a power loss can take the last 100 ms.
pub const ESKER_DURABILITY_BUFFERED: u32 = 2;
/// A commit does not wait: a kill of the process can take the last commits.
pub const ESKER_DURABILITY_NONE: u32 = 3;

/// How esker_open opens a database. Free it with esker_options_free; esker_open leaves it as it is.
#[derive(Default)]
pub struct esker_options {
    pub(crate) builder: Builder,
    pub(crate) is_read_only: bool,
}

/// Returns the durability of an argument; `None` is the default.
pub(crate) fn durability_of(number: u32) -> Result<Option<Durability>, Failure> {
    Ok(match number {
        ESKER_DURABILITY_DEFAULT => None,
        ESKER_DURABILITY_SYNC => Some(Durability::Sync),
        ESKER_DURABILITY_BUFFERED => Some(Durability::Buffered),
        ESKER_DURABILITY_NONE => Some(Durability::None),
        other => return Err(Failure::invalid(format!("{other} is no durability"))),
    })
}

/// Makes options with their defaults, which suit most programs.
#[unsafe(no_mangle)]
pub extern "C" fn esker_options_new() -> Option<Box<esker_options>> {
    Some(Box::new(esker_options { builder: Db::builder(), is_read_only: false }))
}

/// Frees options. NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn esker_options_free(options: Option<Box<esker_options>>) {
    drop(options);
}

/// Changes the builder of options that are not NULL.
fn change(options: Option<&mut esker_options>, change: impl FnOnce(Builder) -> Builder) {
    if let Some(options) = options {
        options.builder = change(std::mem::take(&mut options.builder));
    }
}

/// Memory in bytes for cached blocks, indexes, filters and memtables. Default 1 GiB.
#[unsafe(no_mangle)]
pub extern "C" fn esker_options_set_memory(options: Option<&mut esker_options>, bytes: u64) {
    change(options, |builder| builder.memory(bytes));
}

/// The durability of commits that name none: ESKER_DURABILITY_SYNC, unless this sets another.
#[unsafe(no_mangle)]
pub extern "C" fn esker_options_set_durability(
    options: Option<&mut esker_options>,
    durability: u32,
    error: ErrorPlace<'_>,
) -> esker_status {
    call(error, || {
        let options = given(options, "options")?;
        let durability = durability_of(durability)?.unwrap_or(Durability::Sync);
        change(Some(options), |builder| builder.durability(durability));
        Ok(())
    })
}

/// The isolation of esker_transact and of transactions with ESKER_TXN_DEFAULT: true, the default, for
/// serializable, false for snapshot isolation, which permits write skew.
#[unsafe(no_mangle)]
pub extern "C" fn esker_options_set_serializable(options: Option<&mut esker_options>, yes: bool) {
    let isolation = if yes { Isolation::Serializable } else { Isolation::Snapshot };
    change(options, |builder| builder.isolation(isolation));
}

/// Whether a missing database is created. Default true.
#[unsafe(no_mangle)]
pub extern "C" fn esker_options_set_create_if_missing(options: Option<&mut esker_options>, yes: bool) {
    change(options, |builder| builder.create_if_missing(yes));
}

/// Whether a database that exists is an error. Default false.
#[unsafe(no_mangle)]
pub extern "C" fn esker_options_set_error_if_exists(options: Option<&mut esker_options>, yes: bool) {
    change(options, |builder| builder.error_if_exists(yes));
}

/// Whether the database is opened to read it, beside other readers. Nothing is written. Default false.
#[unsafe(no_mangle)]
pub extern "C" fn esker_options_set_read_only(options: Option<&mut esker_options>, yes: bool) {
    if let Some(options) = options {
        options.is_read_only = yes;
    }
}

/// Whether tables are compressed where it pays. Default true.
#[unsafe(no_mangle)]
pub extern "C" fn esker_options_set_compression(options: Option<&mut esker_options>, yes: bool) {
    let compression = if yes { TableCompression::Auto } else { TableCompression::None };
    change(options, |builder| builder.compression(compression));
}

/// Values of this many bytes and more are stored in blob files. 0: none are.
#[unsafe(no_mangle)]
pub extern "C" fn esker_options_set_blobs_from(options: Option<&mut esker_options>, bytes: u64) {
    let from = usize::try_from(bytes).unwrap_or(usize::MAX);
    change(options, |builder| builder.blobs(if bytes == 0 { Blobs::Never } else { Blobs::From(from) }));
}

/// How long an opening waits for a database that another process has open. Default 0.
#[unsafe(no_mangle)]
pub extern "C" fn esker_options_set_lock_timeout(options: Option<&mut esker_options>, milliseconds: u64) {
    change(options, |builder| builder.lock_timeout(Duration::from_millis(milliseconds)));
}

/// Keeps a change feed: the commits of the last `seconds`, and at most `bytes` of them. 0 bytes: no feed.
#[unsafe(no_mangle)]
pub extern "C" fn esker_options_set_feed(options: Option<&mut esker_options>, bytes: u64, seconds: u64) {
    change(options, |builder| builder.feed_retention(bytes, Duration::from_secs(seconds)));
}

/// Encrypts the database with the master keys of a file: see docs/encryption.md for its form.
#[unsafe(no_mangle)]
pub extern "C" fn esker_options_set_key_file(
    options: Option<&mut esker_options>,
    path: *const c_char,
    error: ErrorPlace<'_>,
) -> esker_status {
    call(error, || {
        let options = given(options, "options")?;
        let path: PathBuf = Text::of(path).path("path")?.to_owned();
        encrypt(options, path)
    })
}

#[cfg(feature = "encryption")]
fn encrypt(options: &mut esker_options, path: PathBuf) -> Result<(), Failure> {
    let keys = esker::encryption::MasterKeys::from_file(path)?;
    change(Some(options), |builder| builder.encryption(keys));
    Ok(())
}

#[cfg(not(feature = "encryption"))]
fn encrypt(_: &mut esker_options, _: PathBuf) -> Result<(), Failure> {
    Err(Failure::invalid("this library was built without encryption"))
}

/// Merges `count` operands, oldest first, into `existing`, whose `data` is NULL if the key has no value.
///
/// Writes the new value to `result` and returns its length. If the length is larger than `result.len`, the
/// function is called again with a buffer of that size. UINT64_MAX: an operand or value is not valid.
///
/// It is called by any thread, and also while keys are read. The result may depend on the arguments only.
pub type esker_merge_function = Option<
    extern "C" fn(
        context: *mut c_void,
        existing: esker_slice<'_>,
        operands: *const esker_slice<'_>,
        count: usize,
        result: esker_buffer<'_>,
    ) -> u64,
>;

/// Registers a merge operator under a name. Any thread may use its context until the database is closed.
#[unsafe(no_mangle)]
pub extern "C" fn esker_options_add_merge_operator(
    options: Option<&mut esker_options>,
    name: *const c_char,
    function: esker_merge_function,
    context: *mut c_void,
    error: ErrorPlace<'_>,
) -> esker_status {
    let context = Shared(context);
    call(error, || {
        let options = given(options, "options")?;
        let function = given(function, "function")?;
        let name = Text::of(name).text("name")?.to_owned();
        let merge = move |existing: Option<&[u8]>, operands: &[&[u8]]| {
            let existing = existing.map_or(esker_slice::null(), esker_slice::of);
            let operands: Vec<esker_slice<'_>> =
                operands.iter().map(|bytes| esker_slice::of(bytes)).collect();
            let mut room = vec![0; 256];
            for _ in 0..2 {
                let result = esker_buffer::of(&mut room);
                let len = function(context.pointer(), existing, operands.as_ptr(), operands.len(), result);
                match usize::try_from(len) {
                    Ok(len) if len <= room.len() => {
                        room.truncate(len);
                        return Ok(room);
                    }
                    Ok(len) if len <= esker::VALUE_BYTES_MAX => room = vec![0; len],
                    _ => return Err("the operator refused it".to_owned()),
                }
            }
            Err("the operator asked for a larger buffer twice".to_owned())
        };
        change(Some(options), |builder| builder.merge_operator(name, merge));
        Ok(())
    })
}
