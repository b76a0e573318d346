//! Processes that share the database: its host, and a guest whose operations are requests to the host
//! (`esker-shared`).
//!
//! ```text
//!   World --half of the operations--> guest: Shared --frames--> Network --Session--> Db of the host
//!     `-----the others-------------------------------------------------------------> Db of the host
//! ```
//!
//! The host is the process that the simulator ends and restarts. A guest outlives it, except at a power loss,
//! and sometimes opens the database itself. Requests and replies get lost, and requests come late.
//!
//! - A commit of a guest is applied once or not at all (world.12). If the reply says that it is applied, it
//!   survives the end of the host. If the reply says that nothing was written, nothing was. If there is no
//!   reply, a later host says which, and the state agrees.
//! - A transaction that a guest holds ends with the host.

mod calls;
mod reads;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use esker::{Builder, Db, Error, Result};
use esker_shared::simulation::{Loss, Network};
use esker_shared::{CommitId, Error as SharedError, Outcome, Shared, SharedKeyspace, SharedTransaction};

use super::faults::{attempt, gone, unknown};
use super::transaction::HeldTransaction;
use super::{DIR, World};
use crate::model::state::Id;
use crate::op::{End, GuestEvent, Op, Opening, Read, Reader, SLOTS, Update};
use crate::setting;

/// The processes of a seed that shares its database.
#[derive(Default)]
pub(super) struct Guests {
    network: Network,
    host: Option<Shared>,
    guest: Option<Guest>,
    /// Whether the guest opens the database next.
    takes_over: bool,
    /// What is lost in the next operation of the guest: the number of requests before, and how.
    loss: Cell<Option<(u32, Loss)>>,
    /// A commit whose outcome is unknown.
    unknown: Cell<Option<CommitId>>,
    /// Number of requests lost so far.
    lost: u64,
}

/// A process that writes through the host.
struct Guest {
    shared: Shared,
    keyspaces: RefCell<BTreeMap<Id, SharedKeyspace>>,
    transactions: [Option<HeldTransaction<SharedTransaction>>; SLOTS],
}

impl Guest {
    fn new(shared: Shared) -> Self {
        Guest { shared, keyspaces: RefCell::default(), transactions: Default::default() }
    }
}

impl Guests {
    /// Opens the database in the process that is to be the host.
    fn open(&mut self, builder: Builder) -> Result<Db> {
        self.network.set_next_host(Some(builder.clone()));
        let by_guest = if std::mem::take(&mut self.takes_over) { self.guest.take() } else { None };
        let opened = attempt(|| match &by_guest {
            // Any call of a guest looks for a host.
            Some(guest) => guest.shared.keyspaces().map(drop).map_err(of_engine),
            None => {
                let opened = Shared::builder().engine(builder).network(&self.network).open(DIR);
                self.host = Some(opened.map_err(of_engine)?);
                Ok(())
            }
        });
        self.network.set_next_host(None);
        match by_guest {
            Some(guest) if opened.is_ok() => self.host = Some(guest.shared),
            Some(guest) => self.guest = Some(guest),
            None => {}
        }
        opened?;
        let db = self.host.as_ref().and_then(Shared::db);
        Ok(db.expect("world.12: a process that opens the database is its host"))
    }

    /// Ends the guest without a word.
    fn kill_guest(&mut self) {
        self.network.cut();
        self.guest = None;
        self.unknown.set(None);
    }

    /// Returns the result of a call with the engine's errors as the host saw them.
    fn said<T>(&self, result: esker_shared::Result<T>) -> Result<T> {
        let refusals = self.network.take_refusals();
        match result {
            Ok(value) => Ok(value),
            Err(SharedError::Db(error)) => {
                let Some(refusal) = refusals.into_iter().next_back() else { return Err(error) };
                let is_kind = std::mem::discriminant(&error) == std::mem::discriminant(&refusal);
                let is_same = is_kind || matches!(error, Error::Invalid(_));
                assert!(is_same, "world.12: the host says {refusal}, and the guest hears {error}");
                Err(refusal)
            }
            Err(SharedError::NoHost { .. } | SharedError::HostGone) => Err(gone()),
            Err(SharedError::OutcomeUnknown(id)) => {
                self.unknown.set(Some(id));
                Err(unknown())
            }
            Err(error) => panic!("world.12: {error}"),
        }
    }
}

/// Returns the engine's error of an opening.
fn of_engine(error: SharedError) -> Error {
    match error {
        SharedError::Db(error) => error,
        error => panic!("world.12: {error}"),
    }
}

impl World {
    /// Shares the database of seeds that have guests.
    pub(super) fn begin_sharing(&mut self) {
        let is_shared = setting::has_guests(self.seed) && !self.mode.swept && !self.mode.unshared;
        self.guests = is_shared.then(Guests::default);
    }

    /// Does not share the database, for callers that read its files themselves.
    pub fn forgo_sharing(&mut self) {
        self.mode.unshared = true;
    }

    pub(super) fn has_guests(&self) -> bool {
        self.guests.is_some()
    }

    /// Opens the database in this process, or in the host.
    pub(super) fn open_db(&mut self, opening: Opening) -> Result<Db> {
        let builder = self.builder(opening);
        let faults = self.machine.faults.clone();
        let Some(guests) = &mut self.guests else { return attempt(|| builder.open(DIR)) };
        let is_guest = guests.takes_over && guests.guest.is_some();
        guests.network.set_dead(move || faults.is_frozen());
        let opened = guests.open(builder);
        guests.network.take_refusals();
        if self.machine.faults.is_frozen() {
            self.end_host();
            if is_guest {
                self.end_guest();
            }
        } else {
            self.tally.taken_over += u64::from(is_guest && opened.is_ok());
        }
        opened
    }

    /// Closes the database.
    pub(super) fn close_db(&mut self) -> Result<()> {
        let Some(db) = self.db.take() else { return Ok(()) };
        match self.guests.as_mut().and_then(|guests| guests.host.take()) {
            Some(host) => {
                drop(db);
                attempt(|| host.close().map_err(of_engine))
            }
            None => attempt(|| db.close()),
        }
    }

    /// Ends the process of the host. What the guest holds ends with it.
    pub(super) fn end_host(&mut self) {
        let Some(guests) = &mut self.guests else { return };
        guests.host = None;
        guests.network.take_refusals();
        let Some(guest) = &mut guests.guest else { return };
        for held in guest.transactions.iter_mut().filter_map(Option::take) {
            let (transaction, _) = held.split();
            if let Some(keyspace) = guest.keyspaces.borrow().values().next() {
                let answer = transaction.get(keyspace, "");
                let is_over = matches!(answer, Err(SharedError::HostGone));
                assert!(is_over, "world.12: a transaction outlives its host");
            }
            let committed = transaction.commit();
            assert!(committed.is_err(), "world.12: a transaction is committed after the end of its host");
        }
    }

    /// Ends the guest.
    pub(super) fn end_guest(&mut self) {
        self.guests.iter_mut().for_each(Guests::kill_guest);
    }

    /// Ends the host with its process, and the guest, too, if the machine loses power.
    pub(super) fn end_sharing(&mut self, end: End) {
        self.end_host();
        if matches!(end, End::Power(_)) {
            self.end_guest();
        }
    }

    /// Returns the last commit that the host found when it opened the database.
    pub(super) fn found_by_host(&self) -> Option<u64> {
        self.guests.as_ref().and_then(|guests| guests.network.opened_at()).map(esker::SeqNo::get)
    }

    /// Asks the host for the outcome of a commit whose reply was lost with the last host (world.12).
    pub(super) fn ask_for_outcome(&mut self) {
        let Some(guests) = &self.guests else { return };
        let Some(id) = guests.unknown.take() else { return };
        let guest = guests.guest.as_ref().map(|guest| &guest.shared);
        let Some(asks) = guest.or(guests.host.as_ref()) else { return };
        let answer = attempt(|| guests.said(asks.outcome(&id)));
        guests.unknown.set(None);
        let is_found = self.history.found_doubt();
        let Some(outcome) = self.excused(answer) else { return };
        let is_applied = matches!(outcome, Outcome::Applied(_));
        if let Some(is_found) = is_found {
            assert_eq!(is_applied, is_found, "world.12: commit {id} is said to be {outcome:?}");
        }
        self.tally.resolved += 1;
    }

    /// Does not ask for the outcome of a commit.
    pub(super) fn forget_unknown(&self) {
        self.guests.iter().for_each(|guests| guests.unknown.set(None));
    }

    pub(super) fn note_guest_event(&mut self, event: GuestEvent) {
        let Some(guests) = &mut self.guests else { return };
        match event {
            GuestEvent::LoseRequest(after) => guests.loss.set(Some((after, Loss::Request))),
            GuestEvent::LoseReply(after) => guests.loss.set(Some((after, Loss::Reply))),
            GuestEvent::Delay(after) => guests.loss.set(Some((after, Loss::Delay))),
            GuestEvent::Kill => guests.kill_guest(),
            GuestEvent::TakeOver => guests.takes_over = true,
        }
    }

    /// Runs late requests.
    pub(super) fn end_guest_operation(&mut self) {
        let Some(guests) = &mut self.guests else { return };
        if self.db.is_some() && !self.machine.faults.is_frozen() {
            guests.network.deliver();
        }
        guests.network.stop_losing();
        let lost = guests.network.lost();
        self.tally.lost += lost - std::mem::replace(&mut guests.lost, lost);
        let refusals = guests.network.take_refusals();
        // A late request is refused if its guest knows what became of it.
        let failures = refusals.into_iter().filter(|error| {
            matches!(
                error,
                Error::Io { .. } | Error::NoSpace { .. } | Error::Poisoned(_) | Error::Corrupt { .. }
            )
        });
        for failure in failures {
            self.excused::<()>(Err(failure));
        }
    }

    pub(super) fn expire_in_guest(&mut self, now_ms: u64) {
        let guest = self.guests.as_mut().and_then(|guests| guests.guest.as_mut());
        guest.into_iter().flat_map(|guest| guest.transactions.iter_mut().flatten()).for_each(|held| {
            held.expire(now_ms);
        });
    }

    /// Returns whether the current operation has lost a request or a reply.
    pub(super) fn has_lost(&self) -> bool {
        self.guests.as_ref().is_some_and(|guests| guests.network.lost() > guests.lost)
    }

    pub(super) fn a_guest_holds_turn(&self) -> bool {
        let guest = self.guests.as_ref().and_then(|guests| guests.guest.as_ref());
        guest.is_some_and(|guest| guest.transactions.iter().flatten().any(HeldTransaction::is_exclusive))
    }

    fn holds_by_guest(&self, slot: usize) -> bool {
        let guest = self.guests.as_ref().and_then(|guests| guests.guest.as_ref());
        guest.is_some_and(|guest| guest.transactions[slot].is_some())
    }

    /// Returns whether a guest performs an operation.
    pub(super) fn goes_by_guest(&self, op: &Op) -> bool {
        if self.guests.as_ref().is_none_or(|guests| guests.guest.is_none()) {
            return false;
        }
        let is_drawn = !self.tally.ops.wrapping_add(self.seed).is_multiple_of(3);
        match op {
            Op::Write(..) | Op::Batch(..) | Op::Create(_) | Op::Drop(_) | Op::Rename(..) | Op::Sync => {
                is_drawn
            }
            Op::Begin(_) | Op::BeginExclusive(_) => is_drawn,
            Op::Update(_, update) => is_drawn && is_of_guests(update),
            Op::Read(Reader::Latest, _, read) => is_drawn && !matches!(read, Read::Cursor(_)),
            Op::Read(Reader::Transaction(slot), ..)
            | Op::TransactionWrite(slot, ..)
            | Op::TransactionUpdate(slot, ..)
            | Op::Commit(slot, _)
            | Op::Rollback(slot) => self.holds_by_guest(*slot),
            _ => false,
        }
    }
}

/// Returns whether guests have the call of an update.
fn is_of_guests(update: &Update) -> bool {
    !matches!(update, Update::Lease(..))
}
