//! What all connections share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use esker::Db;
use parking_lot::RwLock;
use tokio::sync::Notify;

use crate::acl::Acl;
use crate::base::clock;
use crate::base::fail::Done;
use crate::clients::Clients;
use crate::config::Config;
use crate::config::options::Options;
use crate::observe::Observed;
use crate::replication::{self, Replication, Source};
use crate::run::cursors::Cursors;
use crate::run::effects::Effects;
use crate::run::queue::Sequencer;
use crate::run::readers::Readers;
use crate::run::registry::Commands;
use crate::run::scripts::Scripts;
use crate::run::watches::Watches;
use crate::store::holdings::Holdings;
use crate::store::{Error, Result, Space, Store};
use crate::types::Database;

/// The ports that it listens on; 0: none yet.
#[derive(Default)]
pub struct Ports {
    /// The port of plain connections.
    pub plain: AtomicU64,
    /// The port of encrypted connections.
    pub tls: AtomicU64,
    /// The port of HTTP.
    pub http: AtomicU64,
}

/// The numbered databases.
pub struct Databases {
    list: RwLock<Vec<Option<Arc<Database>>>>,
    /// Number of times that databases were exchanged. Relaxed: a session with an old one notices at its next
    /// command.
    generation: AtomicU64,
    /// Reads hardly ever wait for a disk. Relaxed: it is a guess.
    are_in_memory: AtomicBool,
    /// There may be parts to remove. Relaxed: a sweep that misses it finds it the next time.
    garbage: AtomicBool,
    /// When data was last made durable by `SAVE` and the like, in seconds since 1970.
    pub saved: AtomicU64,
    /// Cursors of walks.
    pub cursors: Cursors,
    /// Threads that wait for the disk.
    pub readers: Readers,
}

/// When the server began, and how it ends.
pub struct Life {
    /// When it was started, in milliseconds since 1970.
    pub started_ms: u64,
    /// When it was started.
    pub started: Instant,
    /// A name by which clients tell this start from others.
    pub run_id: String,
    stopping: AtomicBool,
    /// It was told to stop. Relaxed, as the next.
    is_told: AtomicBool,
    /// A copy has come, to restart from. Relaxed: it is read when all has ended.
    has_copy: AtomicBool,
    /// Notified when the server is to stop.
    pub stop: Notify,
}

/// What all connections share.
pub struct Server {
    /// The data.
    pub store: Arc<dyn Store>,
    /// How it was started.
    pub options: Options,
    /// The options in force.
    pub config: Config,
    /// Users.
    pub acl: Acl,
    /// The commands.
    pub commands: Commands,
    /// The connections.
    pub clients: Clients,
    /// Its primary, or its replicas.
    pub replication: Replication,
    /// Watched keys.
    pub watches: Watches,
    /// Transactions, locks and topics of connections.
    pub holdings: Holdings,
    /// Where commands that write run.
    pub sequencer: Arc<Sequencer>,
    /// Scripts, by their digests.
    pub scripts: Scripts,
    /// The numbered databases.
    pub databases: Databases,
    /// Counters and latencies.
    pub observed: Observed,
    /// The ports that it listens on.
    pub ports: Ports,
    /// When it began, and how it ends.
    pub life: Life,
}

impl Server {
    /// A server of a store, with these commands. `db`: the database of this process that holds the store's
    /// data, if one does.
    ///
    /// # Errors
    /// The store's; and what is wrong with the file of users.
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
        if config.clients_max() < options.clients_max {
            let why =
                format!("{}: the process may open too few descriptors (ulimit -n)", config.clients_max());
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
                is_told: AtomicBool::new(false),
                stop: Notify::new(),
            },
            replication,
            store,
            options,
        }))
    }

    /// A numbered database.
    ///
    /// # Errors
    /// There is none of this number; and the store's.
    pub fn database(&self, number: usize) -> Done<Arc<Database>> {
        match self.databases.list.read().get(number) {
            None => return Err("ERR DB index is out of range".into()),
            Some(Some(database)) => return Ok(database.clone()),
            Some(None) => {}
        }
        let mut databases = self.databases.list.write();
        match &mut databases[number] {
            Some(database) => Ok(database.clone()),
            // Only its primary makes databases.
            None if self.replication.is_replica() => {
                Ok(Arc::new(replication::empty_database(&*self.store, number)?))
            }
            slot => Ok(slot.insert(Arc::new(Database::open(&*self.store, number)?)).clone()),
        }
    }

    /// The databases that there are.
    pub fn open_databases(&self) -> Vec<Arc<Database>> {
        self.databases.list.read().iter().flatten().cloned().collect()
    }

    /// How many databases there may be.
    pub fn databases_max(&self) -> usize {
        self.databases.list.read().len()
    }

    /// Exchanges two databases.
    ///
    /// # Errors
    /// There are none of these numbers; and the store's.
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
        Ok(())
    }

    /// Becomes a replica of this source. `may_discard`: its data may be given up if it is none of the
    /// primary's history.
    ///
    /// # Errors
    /// The engine's.
    pub fn become_replica(&self, source: Source, may_discard: bool) -> Result<()> {
        // Nobody makes a database meanwhile.
        let _databases = self.databases.list.write();
        self.replication.become_replica(source, may_discard)?;
        self.sequencer.end_waits();
        Ok(())
    }

    /// Looks again which databases there are: on a replica they come and go with what its primary commits.
    ///
    /// # Errors
    /// The store's.
    pub fn find_databases(&self) -> Result<()> {
        let mut databases = self.databases.list.write();
        find_databases(&*self.store, &mut databases)?;
        self.databases.generation.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// How often databases were exchanged.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.databases.generation.load(Ordering::Relaxed)
    }

    /// Whether reads hardly ever wait for a disk.
    #[inline]
    pub fn is_in_memory(&self) -> bool {
        self.databases.are_in_memory.load(Ordering::Relaxed)
    }

    /// Looks again whether reads hardly ever wait for a disk.
    pub fn look_at_memory(&self) {
        self.databases.are_in_memory.store(self.store.is_in_memory(), Ordering::Relaxed);
    }

    /// Whether memory has the answer to a look-up of this key, so that it does not wait for a disk or another
    /// machine.
    pub fn is_cached(&self, space: &Space, key: &[u8]) -> bool {
        let keyspace = self.local().ok().and_then(|_| space.handle::<esker::Keyspace>());
        keyspace.is_some_and(|keyspace| matches!(keyspace.get_if_cached(key), Ok(Some(_))))
    }

    /// The database of this process that holds the data.
    ///
    /// # Errors
    /// There is none.
    pub fn local(&self) -> Done<&Db> {
        let local = self.replication.local().map(|(db, _)| db);
        Ok(local.ok_or("ERR another machine has the files: make copies and backups there")?)
    }

    /// What keeps the server from doing its work, if anything does.
    pub fn trouble(&self) -> Option<String> {
        match self.is_stopping() {
            true => Some("the server stops".to_owned()),
            false => self.store.trouble(),
        }
    }

    /// Notes something that took some time, if that is longer than operators want to know of.
    pub fn note_latency(&self, name: &'static str, took: Duration) {
        let limit = self.config.latency_ms();
        let ms = took.as_millis() as u64;
        if limit > 0 && ms >= limit {
            self.observed.latency_events.add(name, clock::now_ms() / 1000, ms);
        }
    }

    /// There are parts to remove.
    pub fn has_garbage(&self) {
        self.databases.garbage.store(true, Ordering::Relaxed);
    }

    /// Whether there may be parts to remove; then not any more.
    pub fn take_garbage(&self) -> bool {
        self.databases.garbage.swap(false, Ordering::Relaxed)
    }

    /// Tells what commits have said and changed to those who listen and watch.
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

    /// Has it stop.
    pub fn stop_now(&self) {
        self.life.is_told.store(true, Ordering::Relaxed);
        self.end();
    }

    /// Ends what runs.
    pub(crate) fn end(&self) {
        self.life.stopping.store(true, Ordering::Release);
        self.life.stop.notify_waiters();
        self.sequencer.wake();
        self.clients.list().iter().for_each(|client| client.kill());
    }

    /// Has it stop, and begin anew with a copy that has come.
    pub fn begin_anew(&self) {
        self.life.has_copy.store(true, Ordering::Relaxed);
        self.end();
    }

    /// Whether it is to begin anew with a copy that has come: not if it was told to stop, then it takes the
    /// copy the next time.
    pub fn has_copy(&self) -> bool {
        self.life.has_copy.load(Ordering::Relaxed) && !self.life.is_told.load(Ordering::Relaxed)
    }

    /// Whether it is to stop.
    pub fn is_stopping(&self) -> bool {
        self.life.stopping.load(Ordering::Acquire)
    }
}

/// The databases that are there as wholes, none made.
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
