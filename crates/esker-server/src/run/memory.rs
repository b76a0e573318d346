//! How much memory one command, script or transaction may take beside its request.
//!
//! ```text
//!   command --reads--> what it gathers --> its reply     each has a limit, which is looked at with each piece
//!           --tells--> effects, until the commit         of a script or transaction, all of its commands together
//! ```
//!
//! command_memory.1. A command that reads or replies more than the limits fails while it does so, before the memory is taken.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::base::fail::{Done, Fail};
use crate::resp::{Out, REPLY_BYTES_MAX};
use crate::run::cx::Cx;
use crate::store::{Result, Value};

/// What a piece takes beside its bytes, about.
const PIECE_OVERHEAD: usize = 64;
/// Bytes of work between two looks at the time of a script.
const WORK_BYTES: usize = 1 << 20;
/// What a step counts beside its bytes: a look-up takes about as long as it takes to copy these.
const STEP_OVERHEAD: usize = 256;
/// Bytes of values that are read at once.
const VALUES_BYTES: usize = 4 << 20;

/// The limits, in bytes. Relaxed: tests alone change them.
pub struct MemoryLimits {
    /// Of the replies that a connection holds.
    pub reply: AtomicUsize,
    /// Of the reply to a command of a script.
    pub script_reply: AtomicUsize,
    /// Of what a command gathers before it replies or writes.
    pub gathered: AtomicUsize,
    /// Of the effects of a script or a transaction.
    pub effects: AtomicUsize,
}

impl Default for MemoryLimits {
    fn default() -> Self {
        MemoryLimits {
            reply: REPLY_BYTES_MAX.into(),
            script_reply: (128 << 20).into(),
            gathered: (1 << 30).into(),
            effects: (64 << 20).into(),
        }
    }
}

/// Writes a size in the largest unit of which it is a multiple.
pub fn shown(bytes: usize) -> String {
    match bytes {
        _ if bytes.is_multiple_of(1 << 30) => format!("{} GiB", bytes >> 30),
        _ if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ => format!("{bytes} bytes"),
    }
}

/// The error of a reply that does not fit.
pub fn too_large(bytes_max: usize) -> Fail {
    Fail::text(format!("ERR the reply is larger than {}: ask for less at a time", shown(bytes_max)))
}

/// How far a command is.
#[derive(Debug, Default)]
pub struct Progress {
    gathered: Cell<usize>,
    worked: Cell<usize>,
}

impl Progress {
    /// A command begins.
    pub fn begin(&self) {
        self.gathered.set(0);
    }
}

/// Shows the values of keys to `visit`, in order. A few are in memory at a time (command_memory.1).
///
/// # Errors
/// Those of `read`, which has the form of `Reads::multi_get`, and of `visit`.
pub fn each_value(
    keys: &[&[u8]],
    read: impl Fn(&[&[u8]], usize) -> Result<Vec<Option<Value>>>,
    mut visit: impl FnMut(Option<Value>) -> Done,
) -> Done {
    let mut rest = keys;
    while !rest.is_empty() {
        let values = read(rest, VALUES_BYTES)?;
        rest = rest.get(values.len().max(1)..).unwrap_or_default();
        values.into_iter().try_for_each(&mut visit)?;
    }
    Ok(())
}

impl Cx<'_> {
    /// Called for each piece that a command keeps before it replies or writes (command_memory.1).
    ///
    /// # Errors
    /// It keeps too much; the script that runs the command is to end.
    pub fn gather(&self, bytes: usize) -> Done {
        let progress = &self.effects.progress;
        let gathered = progress.gathered.get().saturating_add(bytes + PIECE_OVERHEAD);
        progress.gathered.set(gathered);
        let limit = self.server.commands.memory.gathered.load(Ordering::Relaxed);
        if gathered > limit {
            let limit = shown(limit);
            return Err(Fail::text(format!(
                "ERR the command would take more than {limit} of memory: do it in parts"
            )));
        }
        self.step(bytes)
    }

    /// Called for each step that works on this number of bytes.
    ///
    /// # Errors
    /// The script that runs the command is to end (lua.2).
    #[inline]
    pub fn step(&self, bytes: usize) -> Done {
        let progress = &self.effects.progress;
        let worked = progress.worked.get().saturating_add(bytes + STEP_OVERHEAD);
        let is_due = worked >= WORK_BYTES;
        progress.worked.set(if is_due { 0 } else { worked });
        if is_due && self.session.is_inside && self.server.scripts.must_end() {
            return Err("ERR the script that runs this command was ended".into());
        }
        Ok(())
    }

    /// Runs `body` with the reply apart from the rest, so that it can be written while data is read.
    ///
    /// # Errors
    /// Those of `body`; the reply is too large.
    pub fn with_reply<T>(&mut self, body: impl FnOnce(&Cx<'_>, &mut Out) -> Done<T>) -> Done<T> {
        let mut out = std::mem::take(self.out);
        let done = body(self, &mut out);
        *self.out = out;
        let done = done?;
        self.out.check()?;
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_memory_1_no_more_values_are_read_than_fit() {
        let keys = vec![b"k".as_slice(); 1000];
        let reads = Cell::new(0);
        let read = |keys: &[&[u8]], bytes_max: usize| {
            let some = keys.len().min(1 + bytes_max / (1 << 20));
            reads.set(reads.get() + some);
            Ok(vec![Some(Value::from(vec![0; 1 << 20])); some])
        };
        let mut out = Out::new(false);
        out.bytes_max = 10 << 20;
        let done = each_value(&keys, read, |value| {
            out.bulk_or_null(value.as_deref());
            out.check()
        });
        assert_eq!(done.unwrap_err().message(), too_large(10 << 20).message());
        assert!(reads.get() <= 15, "{}", reads.get());
        let mut seen = 0;
        let all = |keys: &[&[u8]], _| Ok(vec![None; keys.len().min(3)]);
        each_value(&keys, all, |_| {
            seen += 1;
            Ok(())
        })
        .unwrap();
        assert_eq!(seen, 1000);
    }

    #[test]
    fn sizes_are_told_in_their_unit() {
        assert_eq!([1 << 30, 64 << 20, 1000].map(shown), ["1 GiB", "64 MiB", "1000 bytes"]);
    }
}
