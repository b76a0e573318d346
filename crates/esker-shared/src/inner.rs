//! The role of this process: it serves, or it is served, and goes over from one to the other.
//!
//! ```text
//!   call --> link --> host? --> the database
//!                 `-> pool, or connect --refused--> try the lock --taken--> recover, serve: host
//!                          ^---------------------------held-----'
//! ```
//!
//! inner.1. The directory's lock is the only leadership: its holder serves, and no other process.
//!
//! - A process that has become the host stays it until it closes.
//! - Every wait has an end: [`Settings::wait`] for a host, and as long for a reply.

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use esker::{Builder, Durability, Error as DbError, SeqNo};
use parking_lot::Mutex;

use crate::commit_id::{ASKING_MAX, CommitId, Outcome};
use crate::error::{Error, Result};
use crate::guest::{CallError, Conn, Link};
use crate::host::Host;
use crate::protocol::{Reply, Request, VERSION, WireDurability};
use crate::transport::{NoConnection, Transport};

/// First pause between attempts to find a host.
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// How long a caller waits for another thread of this process that opens the database, before it looks again.
const TAKEOVER_TURN: Duration = Duration::from_millis(20);
/// Number of unused connections that are kept.
const POOL_MAX: usize = 8;
/// Pause of the watching thread after it has found no host.
const WATCH_PAUSE: Duration = Duration::from_millis(200);

/// Why a host does not answer.
const SILENT: &str = "has a host that does not answer (it is stopped, works on something long, or was killed \
                      while a child that it forked lives on)";

/// What the user has set.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) builder: Builder,
    pub(crate) wait: Duration,
    pub(crate) idle_max: Duration,
    pub(crate) transport: Transport,
}

/// What all handles of the user share: the last one closes the database, also while the watching thread uses
/// it.
pub(crate) struct Opened {
    inner: Arc<Inner>,
}

/// An open shared database.
pub(crate) struct Inner {
    pub(crate) dir: PathBuf,
    settings: Settings,
    /// The process that opened it.
    pid: u32,
    /// Set once.
    host: OnceLock<Host>,
    /// Held by the thread that tries the directory's lock.
    takeover: Mutex<()>,
    pool: Mutex<Vec<Conn>>,
    /// Set once a host or a connection was found: the database exists. It orders nothing else.
    is_known: AtomicBool,
    /// Set once by a close; it orders nothing else.
    is_closed: AtomicBool,
    /// The connection whose end shows that the host has gone.
    watched: Mutex<Option<crate::socket::Stream>>,
}

impl Opened {
    /// Opens a directory: becomes its host, or a guest.
    pub(crate) fn open(dir: PathBuf, settings: Settings) -> Result<Arc<Self>> {
        let inner = Arc::new(Inner {
            dir,
            settings,
            pid: std::process::id(),
            host: OnceLock::new(),
            takeover: Mutex::new(()),
            pool: Mutex::default(),
            is_known: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            watched: Mutex::default(),
        });
        let link = inner.settle(inner.deadline())?;
        inner.is_known.store(true, Ordering::Relaxed);
        if let Link::Remote(conn) = link {
            // A guest with other keys could not take over.
            inner.settings.builder.check_keys(&inner.dir)?;
            match inner.settings.transport {
                Transport::Socket => inner.watch(conn)?,
                #[cfg(feature = "simulation")]
                Transport::Simulated(_) => inner.give_back(Link::Remote(conn)),
            }
        }
        Ok(Arc::new(Opened { inner }))
    }
}

impl Deref for Opened {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.inner
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // Like `Db`, a drop ignores the error; call `close` to get it.
        let _ = self.inner.close();
    }
}

impl Inner {
    /// The host, if this process is it.
    pub(crate) fn host(&self) -> Option<&Host> {
        self.host.get()
    }

    /// The end of a wait that begins now.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.settings.wait
    }

    /// Refuses calls after a fork, and after a close.
    pub(crate) fn check(&self) -> Result<()> {
        match () {
            () if std::process::id() != self.pid => Err(DbError::Forked.into()),
            () if self.is_closed.load(Ordering::Relaxed) => Err(DbError::Closed.into()),
            () => Ok(()),
        }
    }

    /// Returns where to run requests: here, or through a connection of its own.
    pub(crate) fn link(&self, until: Instant) -> Result<Link> {
        self.check()?;
        if let Some(host) = self.host.get() {
            return Ok(Link::Local(Box::new(host.session())));
        }
        if let Some(conn) = self.pool.lock().pop() {
            return Ok(Link::Remote(conn));
        }
        self.settle(until)
    }

    /// Takes back a link that holds nothing.
    pub(crate) fn give_back(&self, link: Link) {
        let Link::Remote(conn) = link else { return };
        if conn.is_broken() || std::process::id() != self.pid {
            return;
        }
        let mut pool = self.pool.lock();
        if pool.len() < POOL_MAX && self.host.get().is_none() && !self.is_closed.load(Ordering::Relaxed) {
            pool.push(conn);
        } else {
            drop(pool);
            conn.say_goodbye();
        }
    }

    /// Takes back a link that may hold a snapshot or transaction.
    pub(crate) fn release(&self, mut link: Link) {
        if let Link::Remote(conn) = &mut link
            && !conn.is_broken()
            && std::process::id() == self.pid
        {
            conn.release(&self.dir);
        }
        self.give_back(link);
    }

    /// Connects to the host, or becomes it (inner.1).
    fn settle(&self, until: Instant) -> Result<Link> {
        let mut pause = PAUSE_MIN;
        loop {
            self.check()?;
            if let Some(host) = self.host.get() {
                return Ok(Link::Local(Box::new(host.session())));
            }
            match Conn::open(&self.settings.transport, &self.dir, self.settings.wait, until) {
                Ok(conn) => return Ok(Link::Remote(conn)),
                Err(NoConnection::Absent) => {}
                Err(NoConnection::Silent) => return Err(self.no_host(SILENT)),
                Err(NoConnection::Version(theirs)) => {
                    return Err(Error::Version { dir: self.dir.clone(), theirs, ours: VERSION });
                }
                Err(NoConnection::Refused(e)) if e.kind() == std::io::ErrorKind::InvalidFilename => {
                    return Err(Error::PathTooLong(self.dir.clone()));
                }
                Err(NoConnection::Refused(e)) => {
                    return Err(DbError::io("connect to the host of", &self.dir, e).into());
                }
            }
            let mut why = "is opened by another thread of this process, which has not finished".to_owned();
            if let Some(_turn) = self.takeover.try_lock_for(TAKEOVER_TURN) {
                match self.take_over() {
                    Ok(()) => continue,
                    Err(Error::Db(DbError::Locked { pid, .. })) => {
                        let holder = pid.map_or("another process".to_owned(), |pid| format!("process {pid}"));
                        why = format!("is in use by {holder}, which does not serve others");
                    }
                    Err(error) => return Err(error),
                }
            }
            if !self.settings.transport.pause(&mut pause, until) {
                return Err(self.no_host(why));
            }
        }
    }

    /// Opens the database and serves it. The caller holds `takeover`.
    fn take_over(&self) -> Result<()> {
        if self.host.get().is_some() {
            return Ok(());
        }
        // A close waits for its turn after it has set the flag: no host begins after it.
        self.check()?;
        let mut builder = self.settings.builder.clone().lock_timeout(Duration::ZERO);
        if self.is_known.load(Ordering::Relaxed) {
            // A database that was removed meanwhile is not replaced by an empty one.
            builder = builder.create_if_missing(false).error_if_exists(false);
        }
        let db = self.settings.transport.open(builder, &self.dir)?;
        match Host::start(db, &self.dir, self.settings.idle_max, &self.settings.transport) {
            Ok(host) => {
                let is_set = self.host.set(host).is_ok();
                assert!(is_set, "only the holder of `takeover` sets it");
                // Connections to a host that has gone.
                self.pool.lock().clear();
                Ok(())
            }
            Err((db, error)) => {
                // The error that stopped the host says more.
                let _ = db.close();
                Err(error)
            }
        }
    }

    fn no_host(&self, why: impl Into<String>) -> Error {
        Error::NoHost { dir: self.dir.clone(), waited: self.settings.wait, why: why.into() }
    }

    fn garbled(&self, error: std::io::Error) -> Error {
        DbError::io("understand the host of", &self.dir, error).into()
    }

    /// Begins a thread that settles again when the host goes, so that a database always has a host while a
    /// process has it open.
    fn watch(self: &Arc<Self>, conn: Conn) -> Result<()> {
        self.note_watched(&conn);
        let inner = Arc::downgrade(self);
        let thread = std::thread::Builder::new().name("esker-watch".to_owned());
        thread
            .spawn(move || watch_hosts(&inner, conn))
            .map_err(|e| Error::Db(DbError::io("start a thread for", &self.dir, e)))?;
        Ok(())
    }

    fn note_watched(&self, conn: &Conn) {
        *self.watched.lock() = conn.socket();
    }

    /// Runs a request that changes nothing, again after the host has gone. Also returns the link, which may
    /// hold a snapshot for the next parts of the reply.
    pub(crate) fn read_with(&self, request: &Request<'_>) -> Result<(Reply, Link)> {
        let until = self.deadline();
        loop {
            let mut link = self.link(until)?;
            match link.call(request, &self.dir) {
                Ok(reply) => return Ok((reply, link)),
                Err(CallError::Refused(error)) => {
                    self.give_back(link);
                    return Err(error.into());
                }
                Err(CallError::Late) => return Err(self.no_host(SILENT)),
                Err(CallError::Garbled(error)) => return Err(self.garbled(error)),
                Err(CallError::Broken) if Instant::now() >= until => {
                    return Err(self.no_host("was not read, because its hosts ended"));
                }
                Err(CallError::Broken) => {}
            }
        }
    }

    /// Same as [`read_with`](Self::read_with), for a request with one reply.
    pub(crate) fn read(&self, request: &Request<'_>) -> Result<Reply> {
        let (reply, link) = self.read_with(request)?;
        self.give_back(link);
        Ok(reply)
    }

    /// Runs a request on a link whose state is lost with it.
    pub(crate) fn ask(&self, link: &mut Link, request: &Request<'_>) -> Result<Reply> {
        self.check()?;
        link.call(request, &self.dir).map_err(|error| match error {
            CallError::Refused(error) => Error::Db(error),
            CallError::Garbled(error) => self.garbled(error),
            CallError::Broken | CallError::Late => Error::HostGone,
        })
    }

    /// Commits with `send`. If the host goes away, asks the next one for the outcome, and sends again unless
    /// the commit was applied.
    pub(crate) fn commit(
        &self,
        durability: Option<Durability>,
        send: impl Fn(&mut Link, u64, WireDurability) -> Result<Reply, CallError>,
    ) -> Result<SeqNo> {
        loop {
            let mut link = self.link(self.deadline())?;
            let id = self.next_commit(&mut link, durability);
            match send(&mut link, id.number, wire_durability(durability)) {
                Ok(reply) => {
                    self.give_back(link);
                    return reply.into_seqno();
                }
                Err(CallError::Refused(error)) => {
                    self.release(link);
                    return Err(error.into());
                }
                Err(_) => {
                    drop(link);
                    if let Outcome::Applied(seqno) = self.outcome(&id)? {
                        return Ok(seqno);
                    }
                }
            }
        }
    }

    /// Names the next commit of a link.
    pub(crate) fn next_commit(&self, link: &mut Link, durability: Option<Durability>) -> CommitId {
        let (lane, number) = match link {
            Link::Remote(conn) => (conn.lane(), conn.next_number()),
            // Its reply cannot be lost.
            Link::Local(_) => (crate::commit_id::LaneId([0; 16]), 0),
        };
        let durability = durability.unwrap_or(Durability::Sync);
        CommitId { lane, number, durability, sent: Instant::now() }
    }

    /// Returns what became of a commit whose reply was lost.
    pub(crate) fn outcome(&self, id: &CommitId) -> Result<Outcome> {
        let until = self.deadline();
        let unknown = || Error::OutcomeUnknown(*id);
        let mut pause = PAUSE_MIN;
        while id.sent.elapsed() < ASKING_MAX {
            match self.resolve(id, until) {
                Ok(Reply::Outcome(outcome)) => return Ok(outcome),
                Ok(Reply::Running) => {}
                Ok(_) => return Err(unknown()),
                Err(error @ Error::Db(DbError::Forked)) => return Err(error),
                Err(Error::Db(DbError::Closed)) => return Err(unknown()),
                // A sync that failed, or no host, which this process may be unable to become:
                // the next host may answer.
                Err(_) => {}
            }
            if !self.settings.transport.pause(&mut pause, until) {
                break;
            }
        }
        Err(unknown())
    }

    /// Asks a host once.
    fn resolve(&self, id: &CommitId, until: Instant) -> Result<Reply> {
        let mut link = self.link(until)?;
        let request = Request::Resolve(id.lane, id.number, wire_durability(Some(id.durability)));
        let reply = self.ask(&mut link, &request);
        if let Ok(Reply::Outcome(_)) = reply {
            // The lane has no connection, and no other question.
            let _ = link.call(&Request::Forget(id.lane), &self.dir);
        }
        self.give_back(link);
        reply
    }

    /// Ends the role of this process.
    pub(crate) fn close(&self) -> Result<()> {
        if std::process::id() != self.pid || self.is_closed.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        if let Some(watched) = self.watched.lock().take() {
            // A connection that has ended already wakes the thread as well.
            let _ = watched.shutdown(std::net::Shutdown::Both);
        }
        for conn in std::mem::take(&mut *self.pool.lock()) {
            conn.say_goodbye();
        }
        // A thread that takes over finishes first.
        let _turn = self.takeover.lock();
        self.host.get().map_or(Ok(()), |host| Ok(host.close()?))
    }
}

/// Settles again each time the host goes, until this process is the host or has closed the database.
fn watch_hosts(inner: &Weak<Inner>, mut conn: Conn) {
    loop {
        conn.wait_for_end();
        conn = loop {
            let Some(inner) = inner.upgrade() else { return };
            if inner.check().is_err() {
                return;
            }
            match inner.settle(inner.deadline()) {
                Ok(Link::Local(_)) => return,
                Ok(Link::Remote(conn)) => {
                    inner.note_watched(&conn);
                    break conn;
                }
                // Calls report it; this thread tries again.
                Err(_) => {}
            }
            drop(inner);
            std::thread::sleep(WATCH_PAUSE);
        };
    }
}

/// A commit's durability on the wire.
pub(crate) fn wire_durability(durability: Option<Durability>) -> WireDurability {
    match durability {
        None => WireDurability::Default,
        Some(Durability::Sync) => WireDurability::Sync,
        Some(Durability::None | Durability::Buffered) => WireDurability::Buffered,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_child(opened: &mut Arc<Opened>) -> &mut Inner {
        Arc::get_mut(&mut Arc::get_mut(opened).unwrap().inner).unwrap()
    }

    #[test]
    fn a_child_of_a_fork_is_refused_and_leaves_its_parents_socket() {
        let dir = tempfile::tempdir().unwrap();
        let (builder, time) = (Builder::default(), Duration::from_secs(5));
        let settings = Settings { builder, wait: time, idle_max: time, transport: Transport::Socket };
        let mut inner = Opened::open(dir.path().to_owned(), settings).unwrap();
        // As in the child, which has another number.
        let pid = inner.pid;
        of_child(&mut inner).pid += 1;
        let refused = inner.read(&Request::Keyspaces);
        assert!(matches!(refused, Err(Error::Db(DbError::Forked))), "{refused:?}");
        inner.close().unwrap();
        assert!(dir.path().join("SOCKET").exists());
        of_child(&mut inner).pid = pid;
        inner.close().unwrap();
        assert!(!dir.path().join("SOCKET").exists());
    }
}
