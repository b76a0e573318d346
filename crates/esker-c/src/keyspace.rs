//! `esker_keyspace`: a named, ordered map of a database.

use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::time::Duration;

use esker::Keyspace;

use crate::call::{ErrorPlace, Failure, call, given, set};
use crate::options::durability_of;
use crate::slice::{Text, esker_owner, esker_value};
use crate::status::esker_status;

/// Greatest length of a key in bytes.
pub const ESKER_KEY_BYTES_MAX: usize = 65_535;
const _: () = assert!(ESKER_KEY_BYTES_MAX == esker::KEY_BYTES_MAX, "the header says what the engine does");

/// A keyspace. Any number of threads may use it. Free it with esker_keyspace_free; the data stays.
pub struct esker_keyspace {
    pub(crate) keyspace: Keyspace,
}

impl esker_keyspace {
    pub(crate) fn leave(
        place: Option<&mut MaybeUninit<Option<Box<esker_keyspace>>>>,
        make: impl FnOnce() -> Result<Keyspace, Failure>,
    ) -> Result<(), Failure> {
        given(place, "keyspace")?.write(Some(Box::new(esker_keyspace { keyspace: make()? })));
        Ok(())
    }
}

/// Frees a handle. NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn esker_keyspace_free(keyspace: Option<Box<esker_keyspace>>) {
    drop(keyspace);
}

/// Returns the number of a keyspace, which the change feed uses. It stays when the keyspace is renamed.
#[unsafe(no_mangle)]
pub extern "C" fn esker_keyspace_id(keyspace: Option<&esker_keyspace>) -> u32 {
    keyspace.map_or(0, |keyspace| keyspace.keyspace.id().get())
}

/// Sets `name` to the present name.
#[unsafe(no_mangle)]
pub extern "C" fn esker_keyspace_name(
    keyspace: Option<&esker_keyspace>,
    name: Option<&mut MaybeUninit<esker_value>>,
    error: ErrorPlace<'_>,
) -> esker_status {
    call(error, || {
        let text = given(keyspace, "keyspace")?.keyspace.name();
        set(name, esker_value::new(esker_owner::Bytes(text.into_bytes())));
        Ok(())
    })
}

/// Makes another handle of the keyspace whose writes without a transaction have this durability.
#[unsafe(no_mangle)]
pub extern "C" fn esker_keyspace_with_durability(
    keyspace: Option<&esker_keyspace>,
    durability: u32,
    other: Option<&mut MaybeUninit<Option<Box<esker_keyspace>>>>,
    error: ErrorPlace<'_>,
) -> esker_status {
    call(error, || {
        let keyspace = &given(keyspace, "keyspace")?.keyspace;
        let durability = durability_of(durability)?;
        esker_keyspace::leave(other, || {
            Ok(durability.map_or_else(|| keyspace.clone(), |durability| keyspace.with(durability)))
        })
    })
}

/// Sets the merge operator of a keyspace without one: "add-i64", "append", another built-in one, or one of
/// esker_options_add_merge_operator. It stays for ever.
#[unsafe(no_mangle)]
pub extern "C" fn esker_keyspace_set_merge_operator(
    keyspace: Option<&esker_keyspace>,
    operator: *const c_char,
    error: ErrorPlace<'_>,
) -> esker_status {
    call(error, || {
        Ok(given(keyspace, "keyspace")?.keyspace.set_merge_operator(Text::of(operator).text("operator")?)?)
    })
}

/// Sets the lifetime of entries that are put without one. 0: they do not expire.
#[unsafe(no_mangle)]
pub extern "C" fn esker_keyspace_set_default_ttl(
    keyspace: Option<&esker_keyspace>,
    milliseconds: u64,
    error: ErrorPlace<'_>,
) -> esker_status {
    let ttl = (milliseconds > 0).then(|| Duration::from_millis(milliseconds));
    call(error, || Ok(given(keyspace, "keyspace")?.keyspace.set_default_ttl(ttl)?))
}

/// Sets the size in bytes beyond which the oldest entries are removed. 0: unlimited.
#[unsafe(no_mangle)]
pub extern "C" fn esker_keyspace_set_bytes_max(
    keyspace: Option<&esker_keyspace>,
    bytes: u64,
    error: ErrorPlace<'_>,
) -> esker_status {
    call(error, || Ok(given(keyspace, "keyspace")?.keyspace.set_bytes_max((bytes > 0).then_some(bytes))?))
}
