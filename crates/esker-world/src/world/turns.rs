//! A commit that waits while the exclusive turn changes hands.
//!
//! ```text
//!   this thread: transact --conflicts, takes the turn--> body --commits--> exclusive one --commits-->
//!   a thread:                                             a commit waits --------x--- waits -------> commits
//! ```
//!
//! The engine has the points at which the thread stops (`Point::TurnAwaited`, `Point::TurnPassed`) with the
//! feature `canaries` only; otherwise the operation is skipped. Only one of the threads runs at a time.

use super::World;
use crate::op::{KeyspaceNo, Write};

#[cfg(not(feature = "canaries"))]
impl World {
    pub(super) fn take_turns(&mut self, _: KeyspaceNo, _: &[Write; 3]) {}
}

#[cfg(feature = "canaries")]
mod threads {
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread::JoinHandle;

    use esker::interleave::{self, Point};
    use esker::{Isolation, Keyspace, Result};

    use super::super::faults::attempt;
    use super::{KeyspaceNo, World, Write};
    use crate::judge::read::{Source, check_read, everything};
    use crate::model::state::Id;
    use crate::op::Op;
    use crate::perform::{self, OPERATOR, Single};

    /// Number of conflicts after which `transact` takes the turn.
    const CONFLICTS: u32 = 8;

    /// A commit in a thread of its own.
    struct Waiter {
        says: Receiver<Point>,
        go_on: Sender<()>,
        thread: JoinHandle<Result<()>>,
    }

    impl Waiter {
        #[expect(clippy::disallowed_methods, reason = "the thread is the simulator's")]
        fn start(keyspace: Keyspace, write: Write) -> Self {
            let (tell, says) = channel();
            let (go_on, waits) = channel();
            let fault = esker::canary::active();
            let thread = std::thread::spawn(move || {
                esker::canary::set(fault);
                interleave::set(Some(Box::new(move |point| match point {
                    Point::TurnAwaited => drop(tell.send(point)),
                    Point::TurnPassed if tell.send(point).is_ok() => drop(waits.recv()),
                    _ => {}
                })));
                let done = attempt(|| perform::write(&mut Single, &keyspace, &write));
                interleave::set(None);
                done
            });
            Waiter { says, go_on, thread }
        }

        /// Returns the next point that it reaches, or `None` if it has ended.
        fn reached(&self) -> Option<Point> {
            self.says.recv().ok()
        }

        fn finish(self) -> Result<()> {
            let Waiter { says, go_on, thread } = self;
            drop((says, go_on));
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        }
    }

    impl World {
        /// Commits three writes, unless something could fail. The last one waits for the others.
        pub(in super::super) fn take_turns(&mut self, no: KeyspaceNo, writes: &[Write; 3]) {
            if !self.is_calm() || self.holds_turn() {
                return;
            }
            let [conflicting, exclusive, waiting] = *writes;
            let (id, keyspace) = self.pick(no);
            keyspace.set_merge_operator(OPERATOR).expect("nothing fails yet");
            // Not each write conflicts with itself: a removal of an absent key, for example.
            let Some(waiter) = self.conflict(no, conflicting, waiting) else { return };
            let is_behind = waiter.reached();
            assert_eq!(is_behind, Some(Point::TurnPassed), "world.2: a commit does not wait for the turn");
            let transaction = self.db().transaction().isolation(Isolation::Exclusive).begin();
            let mut held = self.expecting(transaction, Isolation::Exclusive);
            let dated = self.dated(id, exclusive);
            perform::write(&mut held.db, &keyspace, &exclusive).expect("nothing fails yet");
            held.note_write(id, dated);
            let _ = waiter.go_on.send(());
            let is_behind = waiter.reached();
            assert_eq!(
                is_behind,
                Some(Point::TurnAwaited),
                "world.2: a commit passes an exclusive transaction"
            );
            let source = Source::Transaction(&held.db, &keyspace);
            let read = check_read(&source, &held.state().map(id), &everything(), self.expires);
            read.expect("nothing fails yet");
            self.commit(held, self.durability());
            let outcome = waiter.finish();
            let dated = self.dated(id, waiting);
            self.wrote(outcome, vec![(id, dated)], self.durability());
            // It makes several commits.
            self.copies.timeline.be_in_doubt();
            self.tally.turns_awaited += 1;
        }

        /// Commits by a transaction that conflicts until it gets the turn. Another commit waits for it.
        /// `None`: it has committed without the turn.
        fn conflict(&mut self, no: KeyspaceNo, write: Write, waiting: Write) -> Option<Waiter> {
            let (id, keyspace) = self.pick(no);
            let db = self.db().clone();
            let (mut conflicts, mut waiter) = (0, None);
            let outcome = db.transact(|transaction| -> Result<()> {
                perform::write(transaction, &keyspace, &write)?;
                if conflicts < CONFLICTS {
                    conflicts += 1;
                    self.begin_operation();
                    self.change(&Op::Write(no, write));
                } else {
                    let started = Waiter::start(keyspace.clone(), waiting);
                    assert_eq!(
                        started.reached(),
                        Some(Point::TurnAwaited),
                        "world.2: a commit does not wait"
                    );
                    waiter = Some(started);
                }
                Ok(())
            });
            let dated = self.dated(id, write);
            self.wrote(outcome, vec![(id, dated)], self.durability());
            waiter
        }

        fn dated(&mut self, id: Id, write: Write) -> Write {
            self.expire();
            let write = write.dated(self.now_ms(), self.history.newest().lifetime_ms(id));
            self.expires |= write.expires();
            write
        }
    }
}
