//! The host: the process that has the database open, and serves the others.
//!
//! ```text
//!   thread "esker-shared": accept --> a thread for each connection: frame --> Session --> frame
//! ```
//!
//! - A connection's faults, bytes and panics end that connection, and nothing else.
//! - A transaction of a guest ends with its connection, or when its guest sends nothing for a while:
//!   other commits may wait for it.
//! - To close, the host first finishes the requests that run, and closes the database last.

use std::collections::HashMap;
use std::io::{self, BufReader, Write};
use std::net::Shutdown;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use esker::Db;
use parking_lot::{Condvar, Mutex};

use crate::commit_id::LaneId;
use crate::error::WireError;
use crate::lanes::Lanes;
use crate::protocol::{self, Reply, Request};
use crate::session::Session;
use crate::socket::{self, Bound, Stream};
use crate::transport::Transport;

/// Longest wait for a connection. Then the accepting thread checks for a stop, old records and its file.
const TICK: Duration = Duration::from_millis(100);
/// How long a new connection may take for its greeting.
const GREETING_MAX: Duration = Duration::from_secs(10);
/// How long a guest may take to read a part of a reply.
const WRITE_MAX: Duration = Duration::from_secs(30);
/// How long a closing host waits for requests that run.
const CLOSE_MAX: Duration = Duration::from_secs(10);
/// Pause after a connection could not be accepted, for example for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The database and the server of its guests. See the module's documentation.
pub(crate) struct Host {
    pub(crate) db: Db,
    server: Arc<Server>,
    /// `None` once it was closed.
    serving: Mutex<Option<Serving>>,
}

/// What lets guests connect.
enum Serving {
    Thread(JoinHandle<()>),
    #[cfg(feature = "simulation")]
    Network(crate::simulation::Network),
}

/// What the threads of a host share.
pub(crate) struct Server {
    db: Db,
    lanes: Arc<Lanes>,
    dir: PathBuf,
    /// How long a guest's transaction may be idle.
    idle_max: Duration,
    /// Set once; read by all threads. It orders nothing else.
    stops: AtomicBool,
    connections: Mutex<Connections>,
    one_ended: Condvar,
}

/// The frame of a reply, and the engine's error if it refused the request.
type Answer = (Vec<u8>, Option<esker::Error>);

/// The open connections by number, for closing them.
#[derive(Default)]
struct Connections {
    next: u64,
    open: HashMap<u64, Stream>,
}

impl Host {
    /// Serves a database that this process has just opened.
    pub(crate) fn start(
        db: Db,
        dir: &Path,
        idle_max: Duration,
        transport: &Transport,
    ) -> Result<Self, (Db, crate::Error)> {
        let lanes = match refuse_replica(&db).and_then(|()| Lanes::new(&db)) {
            Ok(lanes) => Arc::new(lanes),
            Err(error) => return Err((db, error.into())),
        };
        let server = Arc::new(Server {
            db: db.clone(),
            lanes,
            dir: dir.to_owned(),
            idle_max,
            stops: AtomicBool::new(false),
            connections: Mutex::default(),
            one_ended: Condvar::new(),
        });
        let started = match transport {
            Transport::Socket => server.clone().start().map(Serving::Thread),
            #[cfg(feature = "simulation")]
            Transport::Simulated(network) => {
                network.serve(server.clone());
                Ok(Serving::Network(network.clone()))
            }
        };
        match started {
            Ok(serving) => Ok(Host { db, server, serving: Mutex::new(Some(serving)) }),
            Err(e) if e.kind() == io::ErrorKind::InvalidFilename => {
                Err((db, crate::Error::PathTooLong(dir.to_owned())))
            }
            Err(e) => Err((db, esker::Error::io("serve other processes in", dir, e).into())),
        }
    }

    /// Returns a session of this process.
    pub(crate) fn session(&self) -> Session {
        Session::new(&self.db, &self.server.lanes, None)
    }

    /// Ends all connections after their running requests, then closes the database.
    pub(crate) fn close(&self) -> esker::Result<()> {
        let Some(serving) = self.serving.lock().take() else { return Ok(()) };
        self.server.stops.store(true, Ordering::Relaxed);
        match serving {
            // A panic of that thread has ended it as well.
            Serving::Thread(thread) => drop(thread.join()),
            #[cfg(feature = "simulation")]
            Serving::Network(network) => network.end_host(),
        }
        self.db.clone().close()
    }
}

impl Server {
    pub(crate) fn stops(&self) -> bool {
        self.stops.load(Ordering::Relaxed)
    }

    /// Binds the socket and starts the accepting thread.
    fn start(self: Arc<Self>) -> io::Result<JoinHandle<()>> {
        let bound = socket::bind(&self.dir)?;
        let thread = std::thread::Builder::new().name("esker-shared".to_owned());
        thread.spawn(move || self.accept_all(bound))
    }

    /// Begins the session of a connection.
    pub(crate) fn begin_session(&self, lane: LaneId) -> esker::Result<Session> {
        Ok(Session::new(&self.db, &self.lanes, Some(self.lanes.join(lane)?)))
    }

    /// Runs the request of a frame. Returns the frame of the reply, and the engine's error if it refused.
    /// `None`: the guest has said goodbye.
    pub(crate) fn answer(frame: &[u8], session: &mut Session) -> io::Result<Option<Answer>> {
        let request: Request<'_> = protocol::decode(frame)?;
        let is_goodbye = request == Request::Goodbye;
        let reply = session.run(request);
        if is_goodbye {
            return Ok(None);
        }
        Ok(Some(match reply {
            Ok(reply) => (protocol::frame(&reply)?, None),
            Err(error) => (protocol::frame(&Reply::Refused(WireError::from(&error)))?, Some(error)),
        }))
    }

    fn accept_all(self: &Arc<Self>, mut bound: Bound) {
        let mut looked = Instant::now();
        while !self.stops() {
            match bound.accept(TICK) {
                Ok(Some(stream)) => self.begin(stream),
                Ok(None) => {}
                Err(_) => std::thread::sleep(ACCEPT_PAUSE),
            }
            if looked.elapsed() < TICK {
                continue;
            }
            looked = Instant::now();
            self.lanes.remove_old(looked);
            // A program that tidies up may have removed the file.
            if !bound.has_name(&self.dir)
                && self.is_open()
                && let Ok(again) = socket::bind(&self.dir)
            {
                bound = again;
            }
        }
        if self.is_open() {
            bound.remove(&self.dir);
        }
        drop(bound);
        self.end_connections();
    }

    /// Returns whether this process still has the directory's lock (socket.1).
    fn is_open(&self) -> bool {
        !matches!(self.db.health(), esker::Health::Closed)
    }

    /// Begins the thread of a connection. Without a thread the connection closes.
    fn begin(self: &Arc<Self>, stream: Stream) {
        let Ok(other) = stream.try_clone() else { return };
        let number = {
            let mut connections = self.connections.lock();
            connections.next += 1;
            let number = connections.next;
            connections.open.insert(number, other);
            number
        };
        let open = OpenConnection { server: self.clone(), number };
        let serve = move || {
            // The guest sees a closed connection.
            let _ = open.server.serve(&stream);
            drop(stream);
            drop(open);
        };
        let _ = std::thread::Builder::new().name("esker-guest".to_owned()).spawn(serve);
    }

    /// Serves a connection until it ends.
    fn serve(&self, stream: &Stream) -> io::Result<()> {
        socket::check_peer(stream)?;
        stream.set_read_timeout(Some(GREETING_MAX))?;
        stream.set_write_timeout(Some(WRITE_MAX))?;
        let mut reader = BufReader::new(stream);
        let (version, lane) = protocol::read_guest(&mut reader)?;
        if version != protocol::VERSION {
            return protocol::greet_guest(&mut &*stream);
        }
        let mut session = self.begin_session(lane).map_err(io::Error::other)?;
        self.answer_all(stream, &mut reader, &mut session)
    }

    fn answer_all(
        &self,
        mut stream: &Stream,
        reader: &mut BufReader<&Stream>,
        session: &mut Session,
    ) -> io::Result<()> {
        protocol::greet_guest(&mut stream)?;
        stream.set_read_timeout(None)?;
        let mut is_limited = false;
        let mut buffer = Vec::new();
        // Requests that were sent and not read yet stay unread: their guest asks the next host.
        while !self.stops() && protocol::read_frame(reader, &mut buffer)? {
            let Some((reply, refusal)) = Self::answer(&buffer, session)? else { return Ok(()) };
            stream.write_all(&reply)?;
            if matches!(refusal, Some(esker::Error::Closed)) {
                // The program has closed the database itself: another process may have it.
                self.stops.store(true, Ordering::Relaxed);
            }
            if session.holds_transaction() != is_limited {
                is_limited = !is_limited;
                stream.set_read_timeout(is_limited.then_some(self.idle_max))?;
            }
        }
        Ok(())
    }

    /// Ends all connections, after the requests that run.
    fn end_connections(&self) {
        let until = Instant::now() + CLOSE_MAX;
        let mut connections = self.connections.lock();
        for how in [Shutdown::Read, Shutdown::Both] {
            for stream in connections.open.values() {
                // A connection that is closed already ends by itself.
                let _ = stream.shutdown(how);
            }
            while !connections.open.is_empty() {
                if self.one_ended.wait_until(&mut connections, until).timed_out() {
                    break;
                }
            }
        }
    }
}

/// Refuses a replica of `esker serve`: a new copy of its primary replaces its directory, with all that guests
/// have written. The record: docs/formats/replication.md.
fn refuse_replica(db: &Db) -> esker::Result<()> {
    let role = match db.open_keyspace("es.repl") {
        Err(esker::Error::KeyspaceNotFound(_)) => return Ok(()),
        records => records?.get("r")?,
    };
    match role.as_deref() {
        Some([0, ..]) => Err(esker::Error::Invalid(
            "the database is a replica of a server, which cannot be shared: make it a primary by `REPLICAOF NO \
             ONE`, or read it with `Db::open_follower`"
                .to_owned(),
        )),
        _ => Ok(()),
    }
}

/// A connection in the list of open ones.
struct OpenConnection {
    server: Arc<Server>,
    number: u64,
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.server.connections.lock().open.remove(&self.number);
        self.server.one_ended.notify_all();
    }
}
