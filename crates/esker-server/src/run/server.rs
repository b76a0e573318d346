//! State shared by all connections.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use esker::Db;
use parking_lot::RwLock;
use tokio::sync::Notify;

use crate::acl::Acl;
use crate::base::clock;
use crate::clients::Clients;
use crate::clients::tracking::Watched;
use crate::config::Config;
use crate::config::options::{Options, Tls};
use crate::config::source::Source;
use crate::holdings::Holdings;
use crate::observe::Observed;
use crate::replication::{self, Refused, Replication};
use crate::resp::fail::{Done, NO_REPLICAS};
use crate::run::cursors::Cursors;
use crate::run::effects::Effects;
use crate::run::queue::Sequencer;
use crate::run::readers::Readers;
use crate::run::registry::Commands;
use crate::run::scripts::Scripts;
use crate::run::watches::Watches;
use crate::store::database::Database;
use crate::store::{Error, Result, Space, Store};

/// Reads the certificates of these files, for handshakes from now on.
pub type ReadCertificates = Box<dyn Fn(&Tls) -> io::Result<()> + Send + Sync>;

/// Ports that the server listens on. 0 means none yet.
#[derive(Default)]
pub struct Ports {
    /// The port of plain connections.
    pub plain: AtomicU64,
    /// The port of encrypted connections.
    pub tls: AtomicU64,
    /// The port of HTTP.
    pub http: AtomicU64,
    /// Reads the certificates of encrypted connections again, if there are such connections.
    pub read_certificates: OnceLock<ReadCertificates>,
}

/// The numbered databases and the state of their maintenance.
pub struct Databases {
    list: RwLock<Vec<Option<Arc<Database>>>>,
    /// Number of times that databases were swapped. Relaxed: a session with an outdated one notices at its
    /// next command.
    generation: AtomicU64,
    /// Set if reads hardly ever wait for a disk. Relaxed: it is an estimate.
    are_in_memory: AtomicBool,
    /// Set if there may be garbage to remove. Relaxed: a sweep that misses it finds it the next time.
    garbage: AtomicBool,
    /// When `SAVE` or a similar command last made the data durable, in seconds since 1970.
    pub saved: AtomicU64,
    /// Cursors of scans.
    pub cursors: Cursors,
    /// Threads that read from the disk.
    pub readers: Readers,
}

/// When the server started, and how it ends.
pub struct Life {
    /// Start time, in milliseconds since 1970.
    pub started_ms: u64,
    /// Start time of the monotonic clock.
    pub started: Instant,
    /// Name by which clients tell this run of the server from others.
    pub run_id: String,
    stopping: AtomicBool,
    /// Set when a stop was requested. Relaxed, like `has_copy`.
    is_requested: AtomicBool,
    /// Set when a copy to restart from was received. Relaxed: it is read after everything has ended.
    has_copy: AtomicBool,
    /// Notified when the server is to stop.
    pub stop: Notify,
}

/// State shared by all connections.
pub struct Server {
    /// The data.
    pub store: Arc<dyn Store>,
    /// Options given at the start.
    pub options: Options,
    /// Options in force.
    pub config: Config,
    /// Users.
    pub acl: Acl,
    /// The commands.
    pub commands: Commands,
    /// The connections.
    pub clients: Clients,
    /// Link to the primary, or to the replicas.
    pub replication: Replication,
    /// Watched keys.
    pub watches: Watches,
    /// Transactions, locks and topics of connections.
    pub holdings: Holdings,
    /// Runs the commands that write.
    pub sequencer: Arc<Sequencer>,
    /// Scripts by their digests.
    pub scripts: Scripts,
    /// The numbered databases.
    pub databases: Databases,
    /// Counters and latencies.
    pub observed: Observed,
    /// Ports that the server listens on.
    pub ports: Ports,
    /// When the server started, and how it ends.
    pub life: Life,
}

impl Server {
    /// Creates a server for `store` with these commands. `db` is the database of this process that holds the
    /// store's data, if there is one.
    ///
    /// # Errors
    /// Fails if the store fails, or if the file of users is invalid.
    pub(crate) fn with_commands(
        store: Arc<dyn Store>,
        db: Option<Db>,
        options: Options,
        commands: Commands,
    ) -> Result<Arc<Self>> {
        let replication = Replication::open(db.as_ref(), options.replica_of.clone())?;
        let mut databases = vec![None; options.databases.max(1)];
        let names = store.spaces()?;
        if replication.is_replica() {
            find_databases(&*store, &mut databases)?;
        }
        for (number, slot) in databases.iter_mut().enumerate() {
            if !replication.is_replica() && (number == 0 || names.contains(&Database::names(number)[0])) {
                *slot = Some(Arc::new(Database::open(&*store, number)?));
            }
        }
        let now = clock::now_ms();
        let run_id = (0..40).map(|_| char::from(b"0123456789abcdef"[fastrand::usize(..16)])).collect();
        let config = Config::new(&options);
        config.begin_with(&options.given.parameters).map_err(Error::Invalid)?;
        config.safety.demand_quorum(replication.ballot().quorum);
        if config.connections.clients() < options.clients_max {
            let why = format!(
                "{}: the process may open too few descriptors (ulimit -n)",
                config.connections.clients()
            );
            crate::observe::trace::warn("maxclients is lowered", None, &why);
        }
        Ok(Arc::new(Server {
            acl: Acl::new(commands.specs(), &options).map_err(Error::Invalid)?,
            commands,
            clients: Clients::new(config.output_limits().clone()),
            config,
            watches: Watches::default(),
            holdings: Holdings::default(),
            sequencer: Arc::default(),
            scripts: Scripts::default(),
            databases: Databases {
                list: RwLock::new(databases),
                generation: AtomicU64::new(0),
                are_in_memory: AtomicBool::new(store.is_in_memory()),
                garbage: AtomicBool::new(true),
                saved: AtomicU64::new(now / 1000),
                cursors: Cursors::default(),
                readers: Readers::default(),
            },
            observed: Observed::default(),
            ports: Ports::default(),
            life: Life {
                started_ms: now,
                started: clock::moment(),
                run_id,
                stopping: AtomicBool::new(false),
                has_copy: AtomicBool::new(false),
                is_requested: AtomicBool::new(false),
                stop: Notify::new(),
            },
            replication,
            store,
            options,
        }))
    }

    /// Returns a numbered database, and creates it if needed.
    ///
    /// # Errors
    /// Fails if the number is out of range, or if the store fails.
    pub fn database(&self, number: usize) -> Done<Arc<Database>> {
        match self.databases.list.read().get(number) {
            None => return Err("ERR DB index is out of range".into()),
            Some(Some(database)) => return Ok(database.clone()),
            Some(None) => {}
        }
        let mut databases = self.databases.list.write();
        match &mut databases[number] {
            Some(database) => Ok(database.clone()),
            // On a replica, only the primary creates databases.
            None if self.replication.is_replica() => {
                Ok(Arc::new(replication::empty_database(&*self.store, number)?))
            }
            slot => {
                let database = slot.insert(Arc::new(Database::open(&*self.store, number)?)).clone();
                drop(databases);
                // Before anything is read or written there.
                self.clients.tracking.add_database(number, || self.store.changes(&database.main))?;
                Ok(database)
            }
        }
    }

    /// Opens the changes of all databases, for clients that track keys.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn changes(&self) -> Result<Watched> {
        let open = |database: Arc<Database>| {
            Ok(self.store.changes(&database.main)?.map(|changes| (database.number, changes)))
        };
        self.open_databases().into_iter().map(open).collect()
    }

    /// Returns the existing databases.
    pub fn open_databases(&self) -> Vec<Arc<Database>> {
        self.databases.list.read().iter().flatten().cloned().collect()
    }

    /// Returns the maximum number of databases.
    pub fn databases_max(&self) -> usize {
        self.databases.list.read().len()
    }

    /// Swaps two databases.
    ///
    /// # Errors
    /// Fails if a number is out of range, or if the store fails.
    pub fn swap_databases(&self, a: usize, b: usize) -> Done {
        let (one, other) = (self.database(a)?, self.database(b)?);
        let (old, new) = (Database::names(a), Database::names(b));
        let spare = old.clone().map(|name| format!("{name}.swap"));
        let mut names = Vec::new();
        for n in 0..old.len() {
            names.push((old[n].as_str(), spare[n].as_str()));
            names.push((new[n].as_str(), old[n].as_str()));
            names.push((spare[n].as_str(), new[n].as_str()));
        }
        self.store.rename_spaces(&names)?;
        let as_number = |number: usize, of: &Database| {
            let [main, sub, ttl, garbage] = of.spaces().map(Clone::clone);
            Some(Arc::new(Database { number, main, sub, ttl, garbage }))
        };
        let mut databases = self.databases.list.write();
        (databases[a], databases[b]) = (as_number(a, &other), as_number(b, &one));
        self.databases.generation.fetch_add(1, Ordering::Relaxed);
        drop(databases);
        self.clients.invalidate_all();
        Ok(())
    }

    /// Makes the server a replica of `source`. `may_discard` allows it to discard its data if the data is not
    /// part of the primary's history.
    ///
    /// # Errors
    /// Fails if the engine fails.
    pub fn become_replica(&self, source: Source, may_discard: bool) -> Result<()> {
        // The lock prevents the creation of databases meanwhile.
        let _databases = self.databases.list.write();
        self.replication.become_replica(source, may_discard)?;
        self.sequencer.end_waits();
        Ok(())
    }

    /// Runs a step of an election after which the server may be no primary any more.
    ///
    /// # Errors
    /// Fails if an earlier promise forbids it.
    pub fn step_down<T>(
        &self,
        step: impl FnOnce(&Replication) -> std::result::Result<T, Refused>,
    ) -> std::result::Result<T, Refused> {
        // The lock prevents the creation of databases meanwhile.
        let _databases = self.databases.list.write();
        let done = step(&self.replication)?;
        self.sequencer.end_waits();
        Ok(done)
    }

    /// Updates the list of databases. On a replica, the commits of the primary create and remove them.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn find_databases(&self) -> Result<()> {
        let mut databases = self.databases.list.write();
        find_databases(&*self.store, &mut databases)?;
        self.databases.generation.fetch_add(1, Ordering::Relaxed);
        drop(databases);
        self.clients.tracking.renew(|| self.changes())?;
        self.clients.invalidate_all();
        Ok(())
    }

    /// Returns the number of times that databases were swapped.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.databases.generation.load(Ordering::Relaxed)
    }

    /// Returns whether reads hardly ever wait for a disk.
    #[inline]
    pub fn is_in_memory(&self) -> bool {
        self.databases.are_in_memory.load(Ordering::Relaxed)
    }

    /// Updates the estimate of whether reads wait for a disk.
    pub fn look_at_memory(&self) {
        self.databases.are_in_memory.store(self.store.is_in_memory(), Ordering::Relaxed);
    }

    /// Returns whether a look-up of this key can be answered from memory, without waiting for a disk or
    /// another machine.
    pub fn is_cached(&self, space: &Space, key: &[u8]) -> bool {
        let keyspace = self.local().ok().and_then(|_| space.handle::<esker::Keyspace>());
        keyspace.is_some_and(|keyspace| keyspace.get_if_cached(key).is_ok_and(|cached| cached.is_known()))
    }

    /// Returns the database of this process that holds the data.
    ///
    /// # Errors
    /// Fails if there is none.
    pub fn local(&self) -> Done<&Db> {
        let local = self.replication.local().map(|(db, _)| db);
        Ok(local.ok_or("ERR the files are on another machine: make copies and backups there")?)
    }

    /// Returns the error that keeps the server from working, if there is one.
    pub fn health_problem(&self) -> Option<String> {
        match self.is_stopping() {
            true => Some("the server stops".to_owned()),
            false => self.store.health_problem(),
        }
    }

    /// Checks that enough replicas are connected for a write (`min-replicas-to-write`).
    ///
    /// # Errors
    /// There are too few.
    #[inline]
    pub fn check_replicas(&self) -> Done {
        match self.config.safety.replicas_min() {
            Some((count, ms)) if self.replication.replicas.good(ms) < count => Err(NO_REPLICAS.into()),
            _ => Ok(()),
        }
    }

    /// Records the duration of an event if it exceeds the latency threshold.
    pub fn note_latency(&self, name: &'static str, took: Duration) {
        let limit = self.config.latency_ms();
        let ms = took.as_millis() as u64;
        if limit > 0 && ms >= limit {
            self.observed.latency_events.add(name, clock::now_ms() / 1000, ms);
        }
    }

    /// Records that there is garbage to remove.
    pub fn has_garbage(&self) {
        self.databases.garbage.store(true, Ordering::Relaxed);
    }

    /// Returns whether there may be garbage to remove, and clears the mark.
    pub fn take_garbage(&self) -> bool {
        self.databases.garbage.swap(false, Ordering::Relaxed)
    }

    /// Publishes the messages and changes of committed commands to subscribers and watchers.
    pub fn tell_effects(&self, effects: &Effects) {
        effects.messages.iter().for_each(|said| self.clients.pubsub.publish(said));
        effects
            .said
            .iter()
            .flat_map(|said| self.holdings.say(said))
            .for_each(|client| self.sequencer.retry(client));
        effects.changed.iter().for_each(|change| self.holdings.changes.tell(change));
        self.replication.tell();
    }

    /// Reads the certificates of encrypted connections again, for handshakes from now on. `parameters` are
    /// new files, in place of those in force.
    ///
    /// # Errors
    /// A certificate cannot be read or used, and the former ones stay; or there are no encrypted connections.
    pub fn read_certificates(&self, parameters: &[(String, String)]) -> std::result::Result<(), String> {
        let (Some(tls), Some(read)) = (&self.options.tls, self.ports.read_certificates.get()) else {
            return Err("there are no encrypted connections: start the server with --tls-port".to_owned());
        };
        let file = |name: &str| {
            let new = parameters.iter().find(|parameter| parameter.0.eq_ignore_ascii_case(name));
            let value = new.map(|parameter| parameter.1.clone()).or_else(|| self.config.get(name));
            value.filter(|path| !path.is_empty()).map(PathBuf::from)
        };
        let cert = file("tls-cert-file").unwrap_or_default();
        let key = file("tls-key-file").unwrap_or_default();
        let tls = Tls { cert, key, ca: file("tls-ca-cert-file"), ..tls.clone() };
        read(&tls).map_err(|error| error.to_string())
    }

    /// Makes the server stop.
    pub fn stop_now(&self) {
        self.life.is_requested.store(true, Ordering::Relaxed);
        self.end();
    }

    /// Ends the background work.
    pub(crate) fn end(&self) {
        self.life.stopping.store(true, Ordering::Release);
        self.life.stop.notify_waiters();
        self.sequencer.wake();
        self.clients.list().iter().for_each(|client| client.kill());
    }

    /// Makes the server stop and restart from a received copy.
    pub fn restart_from_copy(&self) {
        self.life.has_copy.store(true, Ordering::Relaxed);
        self.end();
    }

    /// Returns whether to restart from a received copy. False once a stop was requested: the copy is then
    /// used at the next start.
    pub fn has_copy(&self) -> bool {
        self.life.has_copy.load(Ordering::Relaxed) && !self.life.is_requested.load(Ordering::Relaxed)
    }

    /// Returns whether the server is stopping.
    pub fn is_stopping(&self) -> bool {
        self.life.stopping.load(Ordering::Acquire)
    }
}

/// Finds the complete databases of the store, and creates none.
fn find_databases(store: &dyn Store, databases: &mut [Option<Arc<Database>>]) -> Result<()> {
    for (number, slot) in databases.iter_mut().enumerate() {
        let mut spaces = Vec::new();
        for name in Database::names(number) {
            spaces.extend(store.find_space(&name)?);
        }
        *slot = match <[_; 4]>::try_from(spaces) {
            Ok([main, sub, ttl, garbage]) => Some(Arc::new(Database { number, main, sub, ttl, garbage })),
            Err(_) => None,
        };
    }
    Ok(())
}
