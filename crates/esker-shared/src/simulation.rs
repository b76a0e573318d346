//! A host and its guests in one thread, for simulators. Not part of the API.
//!
//! ```text
//!   guest: Shared --> Conn --frame--> Network --Session of the host--> Db
//!                       ^---reply or a loss---'
//! ```
//!
//! Sockets, threads and waits are replaced. Frames, sessions, lanes and the search for a host are those of
//! real processes. A request is served to its end before the next one, unless it is [delayed](Loss::Delay).

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use esker::{Builder, Db, Error as DbError, SeqNo};
use parking_lot::Mutex;

use crate::commit_id::LaneId;
use crate::host::Server;
use crate::protocol::{self, Reply};
use crate::session::Session;
use crate::transport::NoConnection;

/// A guest gives up after a pause of this length: nothing changes while it waits.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_millis(4);

/// What becomes of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// It does not reach the host.
    Request,
    /// The host runs it, and its reply is lost.
    Reply,
    /// The guest gives up, and the host runs it later ([`Network::deliver`]).
    Delay,
}

type IsDead = Box<dyn Fn() -> bool + Send + Sync>;

/// The connections of the processes that have one directory open. Clones share them.
#[derive(Clone, Default)]
pub struct Network {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    host: Option<Arc<Server>>,
    /// Returns whether the process of the host has ended.
    is_dead: Option<IsDead>,
    /// The host's sessions by connection.
    sessions: BTreeMap<u64, Session>,
    /// Number of lanes so far.
    lanes: u64,
    /// Options for the process that opens the database next. `None`: no process can get the lock.
    next_host: Option<Builder>,
    /// The last commit that the host found when it opened the database.
    opened_at: Option<SeqNo>,
    /// Number of requests before the one that is lost.
    loss: Option<(u32, Loss)>,
    delayed: Vec<(u64, Vec<u8>)>,
    refusals: Vec<DbError>,
    lost: u64,
}

impl Network {
    /// Sets the options with which the next process opens the database. `None`: none can.
    pub fn set_next_host(&self, builder: Option<Builder>) {
        self.state.lock().next_host = builder;
    }

    /// Sets how to find out whether the process of the host has ended.
    pub fn set_dead(&self, is_dead: impl Fn() -> bool + Send + Sync + 'static) {
        self.state.lock().is_dead = Some(Box::new(is_dead));
    }

    /// Returns the last commit that the host found when it opened the database.
    pub fn opened_at(&self) -> Option<SeqNo> {
        self.state.lock().opened_at
    }

    /// Loses the request after the next `after` ones.
    pub fn lose(&self, after: u32, loss: Loss) {
        self.state.lock().loss = Some((after, loss));
    }

    /// Loses nothing more.
    pub fn stop_losing(&self) {
        self.state.lock().loss = None;
    }

    /// Returns the number of requests lost so far.
    pub fn lost(&self) -> u64 {
        self.state.lock().lost
    }

    /// Takes the errors with which the host has refused requests, in their order.
    pub fn take_refusals(&self) -> Vec<DbError> {
        std::mem::take(&mut self.state.lock().refusals)
    }

    /// Runs the requests that were delayed, whose connections have ended.
    pub fn deliver(&self) {
        let delayed = std::mem::take(&mut self.state.lock().delayed);
        for (number, frame) in delayed {
            let session = self.state.lock().sessions.remove(&number);
            if let Some(mut session) = session {
                let _ = self.run(&frame, &mut session);
            }
        }
    }

    /// Ends all connections, as the death of the guests or of the host does.
    pub fn cut(&self) {
        let ended = {
            let mut state = self.state.lock();
            state.delayed.clear();
            std::mem::take(&mut state.sessions)
        };
        drop(ended);
    }

    pub(crate) fn open(&self, dir: &Path) -> esker::Result<Db> {
        let Some(builder) = self.state.lock().next_host.clone() else {
            return Err(DbError::Locked { path: dir.to_owned(), pid: None, in_this_process: false });
        };
        let db = builder.open(dir)?;
        self.state.lock().opened_at = Some(db.stats().seqno);
        Ok(db)
    }

    pub(crate) fn serve(&self, server: Arc<Server>) {
        self.state.lock().host = Some(server);
    }

    pub(crate) fn end_host(&self) {
        self.state.lock().host = None;
        self.cut();
    }

    pub(crate) fn new_lane(&self) -> LaneId {
        let mut state = self.state.lock();
        state.lanes += 1;
        // As spread as random names.
        let spread = u128::from(state.lanes).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835);
        LaneId(spread.to_be_bytes())
    }

    fn server(&self) -> Option<Arc<Server>> {
        let state = self.state.lock();
        let is_dead = state.is_dead.as_ref().is_some_and(|is_dead| is_dead());
        state.host.clone().filter(|host| !is_dead && !host.stops())
    }

    pub(crate) fn connect(&self, lane: LaneId) -> Result<SimulatedWire, NoConnection> {
        let server = self.server().ok_or(NoConnection::Absent)?;
        // The host ends a connection without a session.
        let session = server.begin_session(lane).map_err(|_| NoConnection::Absent)?;
        let mut state = self.state.lock();
        let number = state.lanes;
        state.sessions.insert(number, session);
        Ok(SimulatedWire { network: self.clone(), number })
    }

    /// Counts a request. Returns how it is lost, if it is.
    fn next_loss(&self) -> Option<Loss> {
        let mut state = self.state.lock();
        match &mut state.loss {
            Some((0, loss)) => {
                let loss = *loss;
                state.loss = None;
                state.lost += 1;
                Some(loss)
            }
            Some((after, _)) => {
                *after -= 1;
                None
            }
            None => None,
        }
    }

    /// Runs a frame in a session. Returns the frame of the reply.
    fn run(&self, frame: &[u8], session: &mut Session) -> io::Result<Option<Vec<u8>>> {
        let mut request = Vec::new();
        protocol::read_frame(&mut &*frame, &mut request)?;
        let Some((reply, refusal)) = Server::answer(&request, session)? else { return Ok(None) };
        self.state.lock().refusals.extend(refusal);
        Ok(Some(reply))
    }
}

impl std::fmt::Debug for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Network")
    }
}

/// A guest's end of a connection.
#[derive(Debug)]
pub(crate) struct SimulatedWire {
    network: Network,
    number: u64,
}

impl SimulatedWire {
    pub(crate) fn exchange(&mut self, frame: &[u8], buffer: &mut Vec<u8>) -> io::Result<Reply> {
        let gone = || io::Error::from(io::ErrorKind::UnexpectedEof);
        if self.network.server().is_none() {
            return Err(gone());
        }
        let loss = self.network.next_loss();
        match loss {
            Some(Loss::Request) => return Err(gone()),
            Some(Loss::Delay) => {
                self.network.state.lock().delayed.push((self.number, frame.to_owned()));
                return Err(io::ErrorKind::TimedOut.into());
            }
            Some(Loss::Reply) | None => {}
        }
        let session = self.network.state.lock().sessions.remove(&self.number);
        let mut session = session.ok_or_else(gone)?;
        let reply = self.network.run(frame, &mut session);
        // A host that has ended meanwhile does not reply.
        if self.network.server().is_none() {
            return Err(gone());
        }
        let reply = reply?.ok_or_else(gone)?;
        self.network.state.lock().sessions.insert(self.number, session);
        if loss == Some(Loss::Reply) {
            return Err(gone());
        }
        protocol::read_frame(&mut &*reply, buffer)?;
        protocol::decode(buffer)
    }

    pub(crate) fn send_last(&mut self, frame: &[u8]) {
        let session = self.network.state.lock().sessions.remove(&self.number);
        if let Some(mut session) = session.filter(|_| self.network.server().is_some()) {
            let _ = self.network.run(frame, &mut session);
        }
    }
}

impl Drop for SimulatedWire {
    fn drop(&mut self) {
        let session = {
            let mut state = self.network.state.lock();
            let is_awaited = state.delayed.iter().any(|(number, _)| *number == self.number);
            if is_awaited { None } else { state.sessions.remove(&self.number) }
        };
        // Outside of the lock: a session ends its transaction.
        drop(session);
    }
}
