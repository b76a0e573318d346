//! `esker_db`: an open database.

use std::ffi::{CString, c_char, c_void};
use std::mem::MaybeUninit;

use esker::{Db, Error};

use crate::call::{ErrorPlace, Failure, call, given, quietly, set};
use crate::keyspace::esker_keyspace;
use crate::options::esker_options;
use crate::slice::Text;
use crate::status::esker_status;

/// An open database. Any number of threads may use it at the same time. Close it with esker_close, after all
/// transactions, iterators and feeds that were made of it have been freed.
pub struct esker_db {
    pub(crate) db: Db,
}

/// Returns the version of the library, such as "0.1.0". It lives for ever.
#[unsafe(no_mangle)]
pub extern "C" fn esker_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// Opens the database in a directory. `options` may be NULL. A missing database is created.
///
/// Errors: ESKER_LOCKED if it is open elsewhere, ESKER_NO_DATABASE if it is missing and not created,
/// ESKER_CORRUPT, ESKER_ENCRYPTION, ESKER_IO, ESKER_NO_SPACE.
#[unsafe(no_mangle)]
pub extern "C" fn esker_open(
    path: *const c_char,
    options: Option<&esker_options>,
    db: Option<&mut MaybeUninit<Option<Box<esker_db>>>>,
    error: ErrorPlace<'_>,
) -> esker_status {
    call(error, || {
        let (place, path) = (given(db, "db")?, Text::of(path).path("path")?);
        let builder = options.map_or_else(Db::builder, |options| options.builder.clone());
        let db = match options.is_some_and(|options| options.is_read_only) {
            true => builder.open_read_only(path)?,
            false => builder.open(path)?,
        };
        place.write(Some(Box::new(esker_db { db })));
        Ok(())
    })
}

/// Opens a database in memory, which ends when it is closed. `options` may be NULL.
#[unsafe(no_mangle)]
pub extern "C" fn esker_open_in_memory(
    options: Option<&esker_options>,
    db: Option<&mut MaybeUninit<Option<Box<esker_db>>>>,
    error: ErrorPlace<'_>,
) -> esker_status {
    call(error, || {
        let place = given(db, "db")?;
        let builder = options.map_or_else(Db::builder, |options| options.builder.clone());
        place.write(Some(Box::new(esker_db { db: builder.open_in_memory()? })));
        Ok(())
    })
}

/// Makes all commits durable, closes the database and frees the handle, whatever it returns. Keyspaces that
/// are not freed yet answer ESKER_CLOSED. NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn esker_close(db: Option<Box<esker_db>>, error: ErrorPlace<'_>) -> esker_status {
    call(error, || match db {
        Some(db) => Ok(db.db.close()?),
        None => Ok(()),
    })
}

/// Runs a body on a database that is not NULL.
fn on(
    db: Option<&esker_db>,
    error: ErrorPlace<'_>,
    body: impl FnOnce(&Db) -> Result<(), Failure>,
) -> esker_status {
    call(error, || body(&given(db, "db")?.db))
}

/// Makes all earlier commits durable.
#[unsafe(no_mangle)]
pub extern "C" fn esker_sync(db: Option<&esker_db>, error: ErrorPlace<'_>) -> esker_status {
    on(db, error, |db| Ok(db.sync()?))
}

/// Compacts the whole database into one run without garbage. Takes long for a large database.
#[unsafe(no_mangle)]
pub extern "C" fn esker_compact(db: Option<&esker_db>, error: ErrorPlace<'_>) -> esker_status {
    on(db, error, |db| Ok(db.compact()?))
}

/// Makes a database in a new directory that is a copy as of now. Tables are linked where that is possible.
#[unsafe(no_mangle)]
pub extern "C" fn esker_checkpoint(
    db: Option<&esker_db>,
    directory: *const c_char,
    error: ErrorPlace<'_>,
) -> esker_status {
    on(db, error, |db| {
        db.checkpoint(Text::of(directory).path("directory")?)?;
        Ok(())
    })
}

/// Reads all files and checks their checksums and structure. ESKER_CORRUPT: the message has the first damage
/// with its file, and the number of others; esker_error_file is the directory.
#[unsafe(no_mangle)]
pub extern "C" fn esker_check(db: Option<&esker_db>, error: ErrorPlace<'_>) -> esker_status {
    on(db, error, |db| {
        let problems = db.check()?.problems;
        let Some(first) = problems.first() else { return Ok(()) };
        let detail = match problems.len() {
            1 => first.clone(),
            count => format!("{first}; and {} other problems", count - 1),
        };
        Err(Error::corrupt("database", db.path(), 0, detail).into())
    })
}

/// Salvages what can be read of a damaged database, which must not be open, into a new one in the directory
/// `target`, which must be missing or empty. The source is not changed. `esker repair` also lists what was
/// lost.
///
/// Errors: ESKER_LOCKED, ESKER_NO_DATABASE if the source holds no part of a database, ESKER_INVALID if the
/// target is not empty, and those of writing.
#[unsafe(no_mangle)]
pub extern "C" fn esker_repair(
    source: *const c_char,
    target: *const c_char,
    error: ErrorPlace<'_>,
) -> esker_status {
    call(error, || {
        let (source, target) = (Text::of(source).path("source")?, Text::of(target).path("target")?);
        esker::repair(source, target)?;
        Ok(())
    })
}

/// Removes a database, which may be damaged: its files, and the directory if nothing else is in it.
///
/// Errors: ESKER_LOCKED if it is open, ESKER_NO_DATABASE if there is no file of a database, ESKER_IO.
#[unsafe(no_mangle)]
pub extern "C" fn esker_destroy(directory: *const c_char, error: ErrorPlace<'_>) -> esker_status {
    call(error, || Ok(esker::destroy(Text::of(directory).path("directory")?)?))
}

/// A function of the caller that takes a name.
pub type esker_name_function = Option<extern "C" fn(context: *mut c_void, name: *const c_char)>;

/// A function of the caller that takes a figure.
pub type esker_figure_function = Option<extern "C" fn(context: *mut c_void, name: *const c_char, value: f64)>;

/// Calls a function with the name of each keyspace, in their order.
#[unsafe(no_mangle)]
pub extern "C" fn esker_keyspace_names(
    db: Option<&esker_db>,
    function: esker_name_function,
    context: *mut c_void,
    error: ErrorPlace<'_>,
) -> esker_status {
    on(db, error, |db| {
        let function = given(function, "function")?;
        for name in db.keyspaces()? {
            function(context, CString::new(name).unwrap_or_default().as_ptr());
        }
        Ok(())
    })
}

/// Calls a function with each figure of the database: sizes, counts, times. `esker stats` explains them.
#[unsafe(no_mangle)]
pub extern "C" fn esker_stats(
    db: Option<&esker_db>,
    function: esker_figure_function,
    context: *mut c_void,
    error: ErrorPlace<'_>,
) -> esker_status {
    on(db, error, |db| {
        let function = given(function, "function")?;
        db.stats().each(|figure| {
            if let Some(value) = figure.value.number() {
                function(context, CString::new(figure.name).unwrap_or_default().as_ptr(), value);
            }
        });
        Ok(())
    })
}

/// Returns the keyspace of a name, and creates it if it is missing. The name "default" always exists.
#[unsafe(no_mangle)]
pub extern "C" fn esker_keyspace_open(
    db: Option<&esker_db>,
    name: *const c_char,
    keyspace: Option<&mut MaybeUninit<Option<Box<esker_keyspace>>>>,
    error: ErrorPlace<'_>,
) -> esker_status {
    on(db, error, |db| esker_keyspace::leave(keyspace, || Ok(db.keyspace(Text::of(name).text("name")?)?)))
}

/// Returns the keyspace of a name. Error: ESKER_KEYSPACE_NOT_FOUND.
#[unsafe(no_mangle)]
pub extern "C" fn esker_keyspace_find(
    db: Option<&esker_db>,
    name: *const c_char,
    keyspace: Option<&mut MaybeUninit<Option<Box<esker_keyspace>>>>,
    error: ErrorPlace<'_>,
) -> esker_status {
    on(db, error, |db| {
        esker_keyspace::leave(keyspace, || Ok(db.open_keyspace(Text::of(name).text("name")?)?))
    })
}

/// Drops a keyspace with all its entries. Error: ESKER_KEYSPACE_NOT_FOUND.
#[unsafe(no_mangle)]
pub extern "C" fn esker_keyspace_drop(
    db: Option<&esker_db>,
    name: *const c_char,
    error: ErrorPlace<'_>,
) -> esker_status {
    on(db, error, |db| Ok(db.drop_keyspace(Text::of(name).text("name")?)?))
}

/// Renames a keyspace. Errors: ESKER_KEYSPACE_NOT_FOUND, ESKER_KEYSPACE_EXISTS.
#[unsafe(no_mangle)]
pub extern "C" fn esker_keyspace_rename(
    db: Option<&esker_db>,
    from: *const c_char,
    to: *const c_char,
    error: ErrorPlace<'_>,
) -> esker_status {
    on(db, error, |db| Ok(db.rename_keyspace(Text::of(from).text("from")?, Text::of(to).text("to")?)?))
}

/// Sets `seqno` to the number of the newest commit that readers see.
#[unsafe(no_mangle)]
pub extern "C" fn esker_newest_commit(db: Option<&esker_db>, seqno: Option<&mut MaybeUninit<u64>>) {
    quietly(|| {
        if let Some(db) = db {
            set(seqno, db.db.snapshot().seqno().get());
        }
    });
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "it damages files from outside")]
mod tests {
    use std::fs;

    use super::*;
    use esker_status::{ESKER_CORRUPT, ESKER_OK};

    #[test]
    fn a_check_fails_if_a_table_is_damaged() -> esker::Result<()> {
        let dir = tempfile::tempdir().unwrap();
        let db = esker_db { db: Db::open(dir.path())? };
        db.db.keyspace("users")?.put("ann", "1")?;
        db.db.compact()?;
        assert_eq!(esker_check(Some(&db), None), ESKER_OK);
        db.db.close()?;
        let files = fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap().path());
        for table in files.filter(|path| path.extension().is_some_and(|ending| ending == "sst")) {
            let mut bytes = fs::read(&table).unwrap();
            // Not in what an opening reads.
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            fs::write(&table, bytes).unwrap();
        }
        let db = esker_db { db: Db::open(dir.path())? };
        assert_eq!(esker_check(Some(&db), None), ESKER_CORRUPT);
        Ok(())
    }
}
