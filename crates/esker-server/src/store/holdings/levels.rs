//! Transactions one in another, and savepoints: what can be undone alone.

use std::sync::Arc;

use crate::base::fail::Done;
use crate::store::Snapshot;

/// So many are one in another at the most.
const LEVELS_MAX: usize = 64;

/// The outermost transaction first.
#[derive(Default)]
pub struct Levels(Vec<Level>);

struct Level {
    /// The state it reads, if reads are repeatable in it.
    snapshot: Option<Arc<dyn Snapshot>>,
    /// It is a savepoint of this name, no transaction.
    name: Option<Vec<u8>>,
    /// So many things were to be said when it began.
    said: usize,
}

impl Levels {
    /// Begins one inside of all others.
    ///
    /// # Errors
    /// There are too many.
    pub fn enter(&mut self, snapshot: Option<Arc<dyn Snapshot>>, name: Option<&[u8]>, said: usize) -> Done {
        if self.0.len() >= LEVELS_MAX {
            return Err("ERR too many transactions are one in another".into());
        }
        self.0.push(Level { snapshot, name: name.map(<[u8]>::to_vec), said });
        Ok(())
    }

    /// Ends the innermost. How many things were to be said when it began.
    pub fn leave(&mut self) -> Option<usize> {
        self.0.pop().map(|level| level.said)
    }

    /// Whether nothing has begun.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// How many are around the innermost transaction.
    pub fn innermost(&self) -> Option<usize> {
        self.0.iter().rposition(|level| level.name.is_none())
    }

    /// How many are around the newest savepoint of this name in the innermost transaction.
    pub fn find(&self, name: &[u8]) -> Option<usize> {
        let found = self.0.iter().rposition(|level| level.name.as_deref() == Some(name))?;
        (Some(found) > self.innermost()).then_some(found)
    }

    /// The state that reads are of, if they are repeatable.
    pub fn snapshot(&self) -> Option<&Arc<dyn Snapshot>> {
        self.0.iter().find_map(|level| level.snapshot.as_ref())
    }
}
