//! Loads a snapshot into the target.

use std::io::Read;

use esker_rdb::{Item, Reader};

use super::commands;
use super::target::Target;
use crate::failure::{Failure, Result};
use crate::output;
use crate::progress::Progress;
use crate::text::shown;

/// Keys between two updates of the progress bar.
const KEYS_PER_TICK: u64 = 256;

/// What was loaded.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Loaded {
    pub(crate) keys: u64,
    pub(crate) libraries: u64,
}

/// Loads a snapshot called `name` in messages. `stops` is asked now and then.
pub(crate) fn load(
    name: &str,
    input: impl Read,
    target: &mut Target,
    progress: &Progress,
    stops: &dyn Fn() -> bool,
) -> Result<Loaded> {
    let failed = |error: esker_rdb::Error| Failure::message(format!("{}: {}", shown(name), shown(error)));
    let mut reader = Reader::new(input).map_err(failed)?;
    let mut loaded = Loaded::default();
    // A snapshot begins in no database, but that of a single database may not name it.
    target.select(0)?;
    while let Some(item) = reader.read().map_err(failed)? {
        match item {
            Item::Database(number) => target.select(number)?,
            Item::Library(code) => {
                target.push(&[b"FUNCTION", &b"LOAD"[..], &code])?;
                loaded.libraries += 1;
            }
            Item::ModuleData(module) => progress.note(&format!(
                "{}: data of the module {} that belongs to no key is left out",
                shown(name),
                shown(module)
            )),
            Item::Key(key) => {
                commands::make(&key, &mut |words| target.push(words))?;
                loaded.keys += 1;
            }
        }
        if loaded.keys.is_multiple_of(KEYS_PER_TICK) {
            progress.set(reader.offset(), || format!("{} keys", output::count(loaded.keys)));
            if stops() {
                return Err(Failure::message("stopped while the snapshot was loaded"));
            }
        }
    }
    target.flush()?;
    Ok(loaded)
}
