//! Reads the directory beside the process that has it open, as a process of its own would.
//!
//! - A follower shows the state that an opening would find if the process were killed now. It
//!   finds no damage, also after failed writes, and changes nothing.

use std::sync::Arc;

use esker_env::Env;

use super::{DIR, World};
use crate::judge::read;
use crate::model::history::Reach;

impl World {
    /// Opens a follower and compares.
    pub(super) fn look_beside(&mut self) {
        let Some(opening) = self.process.opening.filter(|_| !self.expires) else { return };
        let disk = &self.machine.disk;
        let before = disk.ops();
        let env = Env::simulated(Arc::new(disk.clone()), self.seed);
        let follower = self.builder(opening).env(env).open_follower(DIR);
        let follower = follower.unwrap_or_else(|error| panic!("follower: {error}"));
        let found = read::contents(follower.db(), false);
        let found = found.unwrap_or_else(|error| panic!("follower: {error}"));
        if let Err(complaint) = self.history.clone().recovered(&found, Some(Reach::Unwritten)) {
            panic!("follower: {complaint}");
        }
        let report = follower.db().check();
        let report = report.unwrap_or_else(|error| panic!("follower: check: {error}"));
        assert!(report.problems.is_empty(), "follower: check: {:#?}", report.problems);
        assert_eq!(disk.ops(), before, "follower: reading has changed something");
        self.tally.beside += 1;
    }
}
