//! Checkpoints: copies of the database, beside it on the same disk.
//!
//! ```text
//!   Checkpoint --> Db --links, copies--> another directory --opened on an image of the disk--> what the model had (world.10)
//!                                          `-- looked at again after each opening of the database
//! ```

use std::path::Path;
use std::sync::Arc;

use esker_env::{Env, FaultAction, Fs, MemFs};

use super::World;
use super::trouble::attempt;
use crate::judge::read;
use crate::model::state::State;

/// Where it goes.
const COPY: &str = "copy";

/// The last copy.
#[derive(Clone)]
pub(super) struct Copied {
    /// What the database held when the call began.
    state: State,
    /// The call has succeeded. Otherwise the copy is there, or not.
    is_made: bool,
}

impl World {
    /// Makes a copy in the place of the last one.
    pub(super) fn checkpoint(&mut self) {
        remove(&self.disk);
        let state = self.history.newest().clone();
        self.copied = Some(Copied { state, is_made: false });
        let made = attempt(|| self.db().checkpoint(COPY).map(drop));
        let is_made = self.excused_tidying(made).is_some();
        let mut fired = self.faults.fired_after(self.fired_before).into_iter();
        if fired.any(|call| matches!(call.action, FaultAction::CorruptRead { .. })) {
            // What was read wrong was copied wrong.
            remove(&self.disk);
            self.copied = None;
            return;
        }
        if let Some(copied) = self.copied.as_mut().filter(|_| is_made) {
            copied.is_made = true;
            self.history.all_durable();
            self.tally.copied += 1;
            self.check_copy();
        }
    }

    /// What is there of the last copy is whole, and is what the database was (world.10).
    pub(super) fn check_copy(&mut self) {
        let (Some(copied), Some(opening)) = (&self.copied, self.opening) else { return };
        let image = self.disk.kill();
        image.set_capacity(None);
        if !image.exists(COPY.as_ref()).expect("a file system in memory does not fail") {
            assert!(!copied.is_made, "world.10: the checkpoint is gone");
            self.tally.uncopied += 1;
            return;
        }
        let env = Env::simulated(Arc::new(image), self.seed);
        let db = self.builder(opening).env(env).open(COPY);
        let db = db.unwrap_or_else(|error| panic!("world.10: the checkpoint cannot be opened: {error}"));
        let found = read::contents_with(&db, false, true, None);
        let found = found.unwrap_or_else(|error| panic!("world.10: the checkpoint cannot be read: {error}"));
        if let Some(difference) = copied.state.difference(&found) {
            panic!("world.10: the checkpoint is another: {difference}");
        }
        let report = db.check().unwrap_or_else(|error| panic!("world.10: check: {error}"));
        assert!(report.problems.is_empty(), "world.10: check: {:#?}", report.problems);
    }
}

/// Removes the copy for good, as its owner does who wants the place.
fn remove(disk: &MemFs) {
    let dir = Path::new(COPY);
    let Ok(names) = disk.list_dir(dir) else { return };
    let done = names.iter().try_for_each(|name| disk.remove_file(&dir.join(name)));
    let done = done.and_then(|()| disk.sync_dir(dir)).and_then(|()| disk.remove_dir(dir));
    done.and_then(|()| disk.sync_dir("".as_ref())).expect("a file system in memory does not fail");
}
