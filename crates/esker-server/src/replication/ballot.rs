//! Elections: how a server takes part in choosing the primary (`esker sentinel`).
//!
//! ```text
//!   begin n ----> primary, for the first time
//!   fence n ----> waits for a primary, durably; replies its newest commit
//!                   |-- lead n -----> primary; its epoch's number begins with n
//!                   `-- follow n ---> replica of the server that leads
//!   join n -----> a replica that has caught up takes part from now on
//! ```
//!
//! ballot.1. A server promises a ballot durably before it replies. From then on it confirms no write of a
//!     primary of an earlier ballot, and takes no part in an earlier election.
//! ballot.2. Of the commits of two servers, those in the epoch with the larger number are newer. The numbers
//!     of a ballot's epochs are above those of all earlier ballots, and one server gives them out.
//! ballot.3. A primary counts only replicas of its own ballot. So the replicas that confirm its writes are
//!     servers that an election asks.
//! ballot.4. A copy of the primary's database keeps the promise of the server that takes it. No promise is
//!     made between the end of the copy and the restart with it.
//!
//! ballot.5. A server that takes part follows only the primary of its ballot. No other server may replace its
//!     data, above all no server that has lost its own.
//!
//! A server that has lost its data has also lost its ballot: it takes part again once it has joined.

use esker::Error;

use super::Replication;
use super::bytes::{Broken, Reader};
use super::position::{Epoch, Position, Relation};
use super::records::{Records, Role};
use crate::config::source::Source;

/// The number of an epoch is that of its ballot times this, plus the number of restarts.
const EPOCHS: u32 = 1 << 12;

/// The newest election that a server took part in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ballot {
    /// Its number; 0: the server takes part in none.
    pub number: u32,
    /// The number of replicas that must have a write before it is confirmed.
    pub quorum: u32,
}

impl Ballot {
    /// The largest number. More do not fit the numbers of epochs.
    pub const MAX: u32 = u32::MAX / EPOCHS;

    pub(super) fn encode(self) -> Vec<u8> {
        [self.number.to_le_bytes(), self.quorum.to_le_bytes()].concat()
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> std::result::Result<Self, Broken> {
        Ok(Ballot { number: reader.u32()?, quorum: reader.u32()? })
    }

    /// Returns the number of its first epoch.
    fn first_epoch(self) -> u32 {
        self.number * EPOCHS
    }

    /// Returns the ballot whose primary begins such an epoch.
    pub fn of(epoch: Epoch) -> u32 {
        epoch.number / EPOCHS
    }

    /// Returns whether an epoch was begun by a primary of this ballot.
    pub fn has(self, epoch: Epoch) -> bool {
        Ballot::of(epoch) == self.number
    }
}

/// Why a server does not do what an election asks.
#[derive(Debug)]
pub enum Refused {
    /// This, in words.
    Because(String),
    /// The engine failed.
    Engine(Error),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Refused::Engine(error)
    }
}

fn refuse<T>(why: String) -> std::result::Result<T, Refused> {
    Err(Refused::Because(why))
}

impl Replication {
    /// Returns the newest election that the server took part in.
    pub fn ballot(&self) -> Ballot {
        self.state.lock().ballot
    }

    /// Returns why a server that has promised this ballot cannot follow this one, if it cannot (ballot.5).
    pub fn refuses(&self, ballot: u32) -> Option<String> {
        let state = self.state.lock();
        let leads = matches!(state.role, Role::Primary(_)) && state.ballot.number == ballot;
        let own = state.ballot.number;
        (ballot > 0 && !leads)
            .then(|| format!("ERR the replica has promised ballot {ballot}; this server has promised {own}, or does not lead"))
    }

    /// Returns the records, unless no promise may be made.
    fn electable(&self) -> std::result::Result<&Records, Refused> {
        match self.local() {
            Some(_) if self.state.lock().is_over => refuse("a copy is about to replace the data".to_owned()),
            Some((_, records)) => Ok(records),
            None => refuse("this store cannot be replicated".to_owned()),
        }
    }

    /// Becomes the first primary of a group, with its data. May be repeated.
    ///
    /// # Errors
    /// Fails if the server has promised this ballot otherwise, or a later one.
    pub fn lead_first(&self, number: u32, quorum: u32) -> std::result::Result<(), Refused> {
        let is_led = {
            let state = self.state.lock();
            state.ballot.number == number && matches!(state.role, Role::Primary(_))
        };
        if !is_led {
            self.promise(number)?;
        }
        self.lead(number, quorum)
    }

    /// Promises a ballot, and waits for its primary. Returns the ballot promised before, and the newest
    /// commit, which is durable. May be repeated.
    ///
    /// # Errors
    /// Fails if the server has promised a later ballot, has learned the primary of this ballot, or takes part
    /// in no elections.
    pub fn fence(&self, number: u32) -> std::result::Result<(u32, Position), Refused> {
        match self.ballot().number {
            0 => refuse("this server takes part in no elections: it has to join".to_owned()),
            _ => self.promise(number),
        }
    }

    fn promise(&self, number: u32) -> std::result::Result<(u32, Position), Refused> {
        let _turn = self.take_turn();
        self.electable()?;
        let (before, source) = {
            let state = self.state.lock();
            (state.ballot, state.role.source().cloned())
        };
        let waits = source.is_some_and(|source| source.is_unset());
        if number == 0 || number > Ballot::MAX {
            return refuse(format!("a ballot is a number from 1 to {}", Ballot::MAX));
        }
        if number < before.number || number == before.number && !waits {
            return refuse(format!("this server has promised ballot {}", before.number));
        }
        if number > before.number || !waits {
            self.step_down(Source::unset(), false, Some(Ballot { number, ..before }))?;
        }
        Ok((before.number, self.position()))
    }

    /// Becomes the primary of a promised ballot. May be repeated.
    ///
    /// # Errors
    /// Fails if the ballot was not promised, or if the server follows another primary in it.
    pub fn lead(&self, number: u32, quorum: u32) -> std::result::Result<(), Refused> {
        let _turn = self.take_turn();
        let records = self.electable()?;
        let mut state = self.state.lock();
        let ballot = Ballot { number, quorum };
        let newest = state.history.newest();
        match &state.role {
            _ if state.ballot.number != number => {
                return refuse(format!("this server has promised ballot {}", state.ballot.number));
            }
            Role::Primary(_) => return Ok(()),
            Role::Replica(source) if source.is_unset() => {}
            Role::Replica(source) => return refuse(format!("this server follows {source} in this ballot")),
            Role::Rising(_) => return refuse("this server is becoming a primary".to_owned()),
        }
        if newest.number >= ballot.first_epoch() {
            return refuse(format!(
                "epoch {newest} is too new: use a ballot above {}",
                newest.number / EPOCHS
            ));
        }
        records.write_elected(&Role::Replica(Source::unset()), None, ballot)?;
        state.ballot = ballot;
        let epoch = Epoch { number: ballot.first_epoch(), ..newest.next() };
        self.rise_to(state, epoch)?;
        Ok(())
    }

    /// Follows the primary of a promised ballot. Commits that the primary lacks were never confirmed: a copy
    /// replaces them.
    ///
    /// # Errors
    /// Fails if the ballot was not promised, or if the server is its primary.
    pub fn follow(&self, number: u32, source: Source) -> std::result::Result<(), Refused> {
        let _turn = self.take_turn();
        self.electable()?;
        let (ballot, role) = {
            let state = self.state.lock();
            (state.ballot.number, state.role.clone())
        };
        match role {
            _ if ballot != number => refuse(format!("this server has promised ballot {ballot}")),
            Role::Replica(old) if old == source => Ok(()),
            Role::Replica(_) => Ok(self.step_down(source, false, None)?),
            _ => refuse("this server leads in this ballot".to_owned()),
        }
    }

    /// Has a replica take part that has this commit of its primary.
    ///
    /// # Errors
    /// Fails if the server is no replica, lacks the commit, or has promised a later ballot.
    pub fn join(&self, number: u32, at: Position) -> std::result::Result<(), Refused> {
        let _turn = self.take_turn();
        let records = self.electable()?;
        let mut state = self.state.lock();
        let ballot = Ballot { number, ..state.ballot };
        let Role::Replica(source) = &state.role else {
            return refuse("this server is no replica".to_owned());
        };
        if source.is_unset() || state.ballot.number >= number || !ballot.has(at.epoch) {
            return refuse(format!(
                "this server has promised ballot {}, and follows {source}",
                state.ballot.number
            ));
        }
        if state.history.relation(state.applied.seq, at) != Relation::Prefix {
            return refuse(format!("this server is at {}, and has not caught up with {at}", state.applied));
        }
        records.write_elected(&state.role, None, ballot)?;
        state.ballot = ballot;
        // It connects again, and the primary counts it.
        self.has_changed(state);
        Ok(())
    }

    /// Has the server take part in no elections. Its role stays.
    ///
    /// # Errors
    /// Fails if the engine fails.
    pub fn leave(&self) -> std::result::Result<(), Refused> {
        let _turn = self.take_turn();
        let records = self.electable()?;
        let mut state = self.state.lock();
        records.write_elected(&state.role, None, Ballot::default())?;
        state.ballot = Ballot::default();
        self.has_changed(state);
        Ok(())
    }
}
