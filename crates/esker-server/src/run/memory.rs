//! Limits on the memory that one command, script or transaction may use beside its request.
//!
//! ```text
//!   command --reads--> gathered pieces --> its reply     each has a limit, checked at each piece
//!           --adds---> effects, until the commit         limited for a whole script or transaction
//! ```
//!
//! command_memory.1. A command that reads or replies more than the limits allow fails before the memory is
//!     allocated.

use std::cell::Cell;
use std::sync::atomic::AtomicUsize;

use crate::resp::REPLY_BYTES_MAX;
use crate::resp::fail::Done;
use crate::store::{Result, Value};

/// Estimated bytes of a piece beside its content.
const PIECE_OVERHEAD: usize = 64;
/// Bytes of work between two checks of the time of a script.
const WORK_BYTES: usize = 1 << 20;
/// Bytes that a step counts as beside its content: a look-up takes about as long as copying these.
const STEP_OVERHEAD: usize = 256;
/// Maximum bytes of values read at a time.
const VALUES_BYTES: usize = 4 << 20;

/// Limits, in bytes. Relaxed: only tests change them.
pub struct MemoryLimits {
    /// For the replies that a connection holds.
    pub reply: AtomicUsize,
    /// For the reply to a command of a script.
    pub script_reply: AtomicUsize,
    /// For what a command gathers before it replies or writes.
    pub gathered: AtomicUsize,
    /// For the effects of a script or a transaction.
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

/// Progress of the current command.
#[derive(Debug, Default)]
pub struct Progress {
    gathered: Cell<usize>,
    worked: Cell<usize>,
}

impl Progress {
    /// Resets the progress when a command begins.
    pub fn begin(&self) {
        self.gathered.set(0);
    }

    /// Adds bytes that the command keeps, and returns their total.
    pub fn gather(&self, bytes: usize) -> usize {
        self.gathered.set(self.gathered.get().saturating_add(bytes + PIECE_OVERHEAD));
        self.gathered.get()
    }

    /// Returns the bytes that the command keeps.
    pub fn gathered(&self) -> usize {
        self.gathered.get()
    }

    /// Adds a step of work on this number of bytes. Returns whether the time of a script must be checked.
    #[inline]
    pub fn step(&self, bytes: usize) -> bool {
        let worked = self.worked.get().saturating_add(bytes + STEP_OVERHEAD);
        let is_due = worked >= WORK_BYTES;
        self.worked.set(if is_due { 0 } else { worked });
        is_due
    }
}

/// Passes the values of keys to `visit`, in order, and holds few of them at a time (command_memory.1).
///
/// # Errors
/// Fails if `read`, which works like `Reads::multi_get`, or `visit` fails.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::Out;
    use crate::resp::fail::too_large;

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
}
