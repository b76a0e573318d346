//! Disks that large commits fill up to the reserve, which is for removals.
//!
//! ```text
//!   limit --flush--> the reserve is known --large commits--> NoSpace --removals--> succeed (world.11)
//! ```

use esker_env::Fs;

use super::{DIR, World};
use crate::op::{Crowd, Op};

impl World {
    /// Fills the disk and removes, unless something else could fail.
    pub(super) fn crowd(&mut self, crowd: &Crowd) {
        if !self.is_calm() {
            return;
        }
        self.fill_disk(crowd.bytes);
        // The reserve is that of the newest version.
        self.step_of_crowd(&Op::Flush);
        let before = self.tally.refused;
        for op in &crowd.fills {
            self.step_of_crowd(op);
            if self.tally.refused > before {
                break;
            }
        }
        let is_crowded = self.tally.refused > before;
        self.tally.crowded += u64::from(is_crowded);
        let before = self.tally.refused;
        for op in &crowd.empties {
            self.step_of_crowd(op);
            let free = self.machine.disk.free_bytes(DIR.as_ref());
            assert_eq!(
                self.tally.refused, before,
                "world.11: a removal finds no space: {free:?} bytes are free"
            );
        }
        if !crowd.stays {
            self.machine.disk.set_capacity(None);
        }
    }

    fn step_of_crowd(&mut self, op: &Op) {
        self.begin_operation();
        self.dispatch(op);
        // Each makes a commit.
        self.note_moment();
    }
}
