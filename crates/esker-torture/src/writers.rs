//! Writers at work on one database, each in a thread, and what they say of it.
//!
//! ```text
//!   Script --op--> say(Intent) --> perform --> say(Ack)
//! ```

use esker::Db;

use crate::script::{Op, Script, perform};
use crate::world::World;
use esker_world::failure::{Failure, Result};

/// What is said, in the order of time.
#[derive(Clone, Debug)]
pub(crate) enum Said {
    /// The database is open.
    Opened,
    /// A writer begins an operation.
    Intent { writer: usize, op: Op },
    /// A writer's operation is acknowledged.
    Ack { writer: usize },
}

/// Who writes how much.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writers {
    pub(crate) seed: u64,
    pub(crate) count: usize,
    /// Operations of each.
    pub(crate) ops: usize,
}

impl Writers {
    /// Lets all work at once on what was found; the first failure of any is returned.
    pub(crate) fn work(&self, db: &Db, found: &World, say: &(dyn Fn(Said) + Sync)) -> Result<()> {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..self.count)
                .map(|writer| {
                    let script = Script::new(self.seed, writer, found.scratch(writer));
                    scope.spawn(move || write(db, say, writer, script.take(self.ops)))
                })
                .collect();
            threads.into_iter().try_for_each(|thread| thread.join().expect("writers do not panic"))
        })
    }
}

fn write(
    db: &Db,
    say: &(dyn Fn(Said) + Sync),
    writer: usize,
    script: impl Iterator<Item = Op>,
) -> Result<()> {
    for op in script {
        say(Said::Intent { writer, op: op.clone() });
        perform(db, &op).map_err(|e| Failure::from(e).during(&format!("writer {writer}")))?;
        say(Said::Ack { writer });
    }
    Ok(())
}
