//! Serves a database until it is asked to stop. A replica that has received a copy of its primary's database
//! restarts with the copy.
//!
//! ```text
//!   open --> Server --run--> Stopped: close
//!     ^                 `--> HasCopy: close, exchange the directories --.
//!     `----------------------------------------------------------------'
//! ```
//!
//! A server that follows another in this process takes over its users and what `CONFIG SET` has changed.
//!
//! A request to stop is never lost. It applies to the running server, or to the next one, which then does not
//! start.

use std::sync::{Arc, Weak};

use esker::Db;
use parking_lot::Mutex;

use crate::commands;
use crate::config::options::Options;
use crate::net::listen::{Ended, Listeners, run};
use crate::replication;
use crate::run::registry::Commands;
use crate::run::server::Server;
use crate::store::{self, LocalStore, RemoteStore, Store};

impl Server {
    /// Creates a server for `store`. `db` is the database of this process that holds the store's data, if
    /// there is one.
    ///
    /// # Errors
    /// Fails if the store fails, or if the file of users is invalid.
    pub fn new(store: Arc<dyn Store>, db: Option<Db>, options: Options) -> store::Result<Arc<Self>> {
        Server::with_commands(store, db, options, Commands::new(commands::commands(), commands::specs()))
    }
}

/// Why a server has ended without a request to stop.
#[derive(Debug)]
pub enum Failed {
    /// An address is not available, or a copy could not replace the database.
    System(std::io::Error),
    /// The engine's.
    Engine(esker::Error),
}

impl From<std::io::Error> for Failed {
    fn from(error: std::io::Error) -> Self {
        Failed::System(error)
    }
}

impl From<esker::Error> for Failed {
    fn from(error: esker::Error) -> Self {
        Failed::Engine(error)
    }
}

impl From<store::Error> for Failed {
    fn from(error: store::Error) -> Self {
        match error {
            store::Error::Engine(error) => Failed::Engine(error),
            other => Failed::System(std::io::Error::other(other)),
        }
    }
}

/// Stops [`serve`] at any moment, even before it begins or while one server follows another.
#[derive(Clone, Default)]
pub struct Stopper(Arc<Mutex<Stopping>>);

#[derive(Default)]
struct Stopping {
    is_requested: bool,
    server: Weak<Server>,
}

impl Stopper {
    /// Asks the server to stop.
    pub fn stop(&self) {
        let mut stopping = self.0.lock();
        stopping.is_requested = true;
        if let Some(server) = stopping.server.upgrade() {
            server.stop_now();
        }
    }

    /// Reads the certificates of encrypted connections again.
    ///
    /// # Errors
    /// They cannot be read or used, or there is no server with such connections.
    pub fn read_certificates(&self) -> Result<(), String> {
        let server = self.0.lock().server.upgrade();
        server.map_or(Err("the server does not run".to_owned()), |server| server.read_certificates(&[]))
    }

    /// Returns whether a stop was requested.
    pub fn is_requested(&self) -> bool {
        self.0.lock().is_requested
    }

    /// Sets the server to stop.
    fn attach(&self, server: &Arc<Server>) {
        let mut stopping = self.0.lock();
        stopping.server = Arc::downgrade(server);
        if stopping.is_requested {
            server.stop_now();
        }
    }
}

/// Serves what `open` opens, with `memory` bytes, until the server is asked to stop. `begin` gets each server
/// as it starts. The database is closed at the end.
///
/// # Errors
/// Why it has ended.
pub async fn serve(
    mut open: impl FnMut() -> esker::Result<Db>,
    memory: u64,
    mut options: Options,
    stopper: &Stopper,
    mut begin: impl FnMut(&Arc<Server>, &Listeners),
) -> Result<(), Failed> {
    let mut listeners = None;
    let mut before: Option<(Vec<_>, Vec<_>)> = None;
    while !stopper.is_requested() {
        let db = match open() {
            Err(_) if stopper.is_requested() => break,
            opened => opened?,
        };
        let server =
            Server::new(Arc::new(LocalStore::new(db.clone(), memory)), Some(db.clone()), options.clone())?;
        if let Some((parameters, users)) = before.take() {
            server.config.set(&parameters).map_err(store::Error::Invalid)?;
            server.acl.replace(users);
        }
        stopper.attach(&server);
        let listening = match listeners.take() {
            Some(listening) => listening,
            None => Listeners::bind(&server).await?,
        };
        let listening = listeners.insert(listening);
        begin(&server, listening);
        let ended = run(server.clone(), listening).await?;
        // Handles that connections still hold fail from here on.
        tokio::task::block_in_place(|| db.close())?;
        if ended == Ended::Stopped {
            break;
        }
        replication::exchange(&options.dir)?;
        // The copy records its primary.
        options.replica_of = None;
        before = Some((server.config.changes(), server.acl.users()));
    }
    Ok(())
}

/// Serves a store past this process until the server is asked to stop. `begin` gets the server as it starts.
///
/// # Errors
/// Why it has ended.
pub async fn serve_store(
    store: RemoteStore,
    options: Options,
    stopper: &Stopper,
    begin: impl FnOnce(&Arc<Server>, &Listeners),
) -> Result<(), Failed> {
    let store = Arc::new(store);
    let server = Server::new(store.clone(), None, options)?;
    stopper.attach(&server);
    let listeners = Listeners::bind(&server).await?;
    begin(&server, &listeners);
    run(server, &listeners).await?;
    tokio::task::block_in_place(|| store.close());
    Ok(())
}
