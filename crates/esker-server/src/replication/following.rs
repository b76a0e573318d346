//! The replica's side of a stream once it has been agreed where to continue. Sockets and clocks are in
//! follow.rs.
//!
//! ```text
//!   Frame --take--> commits of the database;   sync --> they are durable;   numbers --> Ack
//! ```
//!
//! Reported numbers are true when they are reported: a commit is applied once readers see it, and durable
//! once it is on the disk.

use super::Replication;
use super::apply::{Applied, Applier, Changed, Noted, text};
use super::frame::Frame;

/// Takes the frames of a primary.
pub struct Following {
    applier: Applier,
}

impl Following {
    /// Starts at the database's position, for as long as the role has this number.
    ///
    /// # Errors
    /// Fails if the engine fails.
    pub fn new(replication: &Replication, term: u64) -> Applied<Self> {
        Ok(Following { applier: Applier::new(replication, term)? })
    }

    /// Takes a frame. If it ends a commit, returns what the commit has changed.
    ///
    /// # Errors
    /// Why the connection has to end.
    pub fn take(
        &mut self,
        replication: &Replication,
        frame: Frame,
        noted: Noted,
    ) -> Applied<Option<Changed>> {
        match frame {
            Frame::Ops(bytes) => self.applier.take(&bytes, noted)?,
            Frame::Commit(at) => return self.applier.commit(replication, at).map(Some),
            Frame::Abandon => self.applier.abandon()?,
            Frame::Alive(newest) => replication.state.lock().upstream.newest = newest,
            Frame::End(why) => return Err(format!("the primary has ended the stream: {why}")),
            other => return Err(format!("unexpected in a stream of commits: {other:?}")),
        }
        Ok(None)
    }
}

impl Replication {
    /// Returns the progress of a replica: the newest received, applied and durable commit.
    pub(crate) fn numbers(&self) -> [u64; 3] {
        let state = self.state.lock();
        [state.applied.seq, state.applied.seq, state.durable]
    }

    /// Makes durable what has been applied.
    ///
    /// # Errors
    /// Fails if the engine fails.
    pub(crate) fn sync_applied(&self) -> Applied {
        let [_, applied, _] = self.numbers();
        self.sync().map_err(text)?;
        let mut state = self.state.lock();
        state.durable = state.durable.max(applied);
        Ok(())
    }
}
