//! Archives commits beside backups, and restores single ones.
//!
//! ```text
//!   Archive --> Db --feed--> segments beside the backups --restore a commit on an image--> compare
//!                  `-- too far behind, or no backup yet: make a backup
//! ```
//!
//! Each commit from the newest backup to the end of the archive can be restored, whatever the wall clock has
//! shown, and gives the state after it. The archive continues in later processes if the feed has retained
//! everything since the backup.

use std::time::Duration;

use esker::backup::{Backup, Point};
use esker::{Error, SeqNo};
use esker_env::{Clock, FaultAction};

use super::World;
use super::copy::{BACKUPS, Options, RESTORED, options_of};
use super::faults::attempt;

/// One restore in this many restores to a time.
const TIMED_ONE_IN: u16 = 7;
/// One in this many of the others restores the end of the archive.
const LAST_ONE_IN: u16 = 4;

/// The newest backup.
pub(super) struct Archive {
    /// Its last commit.
    from: u64,
}

impl World {
    /// Notes a backup that ends with this commit.
    pub(super) fn note_backup(&mut self, from: u64) {
        self.copies.archive = Some(Archive { from });
    }

    /// Adds to the archive, or makes a backup if there is none. Then restores from it.
    pub(super) fn archive(&mut self, pick: u16) {
        if self.keeps_all().is_none() {
            return;
        }
        let Some(from) = self.copies.archive.as_ref().map(|archive| archive.from) else {
            return self.back_up();
        };
        let made = attempt(|| Backup::open_in(self.env(), BACKUPS)?.archive(self.db()));
        let mut fired = self.machine.faults.fired_after(self.process.fired_before).into_iter();
        let is_wrong = fired.any(|call| matches!(call.action, FaultAction::CorruptRead { .. }));
        if let Err(Error::FeedTruncated { .. } | Error::NoFeed | Error::NoBackup(_)) = &made {
            let is_kept = self.copies.kept_from.is_some_and(|kept| from > kept);
            assert!(!is_kept, "the archive does not go on: {made:?}");
            self.copies.archive = None;
            return;
        }
        let made = self.excused_tidying(made);
        if is_wrong {
            return self.forget_backups();
        }
        if made.is_some() {
            self.history.all_durable();
            self.tally.archived += u64::from(made.flatten().is_some());
            self.check_archive(from, pick);
        }
    }

    /// Restores from the archive and compares with the model.
    fn check_archive(&mut self, from: u64, pick: u16) {
        let env = self.env_of_image();
        let opened = Backup::open_in(env.clone(), BACKUPS);
        let mut backups = opened.unwrap_or_else(|error| panic!("{error}"));
        let segments = backups.segments().unwrap_or_else(|error| panic!("{error}"));
        let last = segments.iter().map(|segment| segment.last.get()).max().unwrap_or(from).max(from);
        let commit = match pick {
            _ if pick.is_multiple_of(LAST_ONE_IN) => last,
            _ => from + u64::from(pick) % (last - from + 1),
        };
        let now = self.machine.clock.unix_time() + Duration::from_secs(u64::from(pick) % 3);
        let point = match pick % TIMED_ONE_IN {
            3 => Point::Time(now.as_secs()),
            _ => Point::Commit(SeqNo::new(commit)),
        };
        let builder = self.builder(self.opening_of_copies());
        let restored = match backups.restore(RESTORED).point(point).builder(builder).run() {
            Ok(restored) => restored.seqno.get(),
            // The clock may have been ahead for all of the archive.
            Err(Error::NoBackup(_)) if matches!(point, Point::Time(_)) => return,
            Err(error) => {
                panic!("{point:?} of {from} to {last} cannot be restored: {error}")
            }
        };
        let is_asked_for = matches!(point, Point::Time(_)) || restored == commit;
        assert!(is_asked_for, "{restored} is restored in place of {commit}");
        self.tally.restored += 1;
        let options: Option<Options> =
            if restored == self.seqno() { attempt(|| options_of(self.db())).ok() } else { None };
        let states = self.copies.timeline.at(restored);
        if !states.is_empty() {
            self.check_copied(env, RESTORED, &states, options.as_ref());
        }
    }
}
