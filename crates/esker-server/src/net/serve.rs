//! Serves a database until it is told to stop. A replica that has got a copy of its primary's database begins anew with that one.
//!
//! ```text
//!   open --> Server --run--> Stopped: close
//!     ^                 `--> HasCopy: close, exchange the directories --.
//!     `----------------------------------------------------------------'
//! ```
//!
//! serve.1. A stop is never lost: it holds for the server that runs, or for the next one, which then does not begin.

use std::sync::{Arc, Weak};

use esker::Db;
use parking_lot::Mutex;

use crate::config::options::Options;
use crate::net::listen::{Ended, Listeners, run};
use crate::replication;
use crate::run::server::Server;
use crate::store::LocalStore;

/// Why a server has ended that was not told to.
#[derive(Debug)]
pub enum Failed {
    /// An address cannot be had, or a copy cannot be put into its place.
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

/// Stops [`serve`], at any moment: before it begins, and while one server follows another (serve.1).
#[derive(Clone, Default)]
pub struct Stopper(Arc<Mutex<Stopping>>);

#[derive(Default)]
struct Stopping {
    is_told: bool,
    server: Weak<Server>,
}

impl Stopper {
    /// Has the server stop.
    pub fn stop(&self) {
        let mut stopping = self.0.lock();
        stopping.is_told = true;
        if let Some(server) = stopping.server.upgrade() {
            server.stop_now();
        }
    }

    /// Whether it is to stop.
    pub fn is_told(&self) -> bool {
        self.0.lock().is_told
    }

    /// This server is the one to stop.
    fn attach(&self, server: &Arc<Server>) {
        let mut stopping = self.0.lock();
        stopping.server = Arc::downgrade(server);
        if stopping.is_told {
            server.stop_now();
        }
    }
}

/// Serves what `open` opens, with `memory` bytes, until the server is told to stop. `begin` is shown each server as it begins. The database is closed at the end.
///
/// # Errors
/// What has ended it.
pub async fn serve(
    mut open: impl FnMut() -> esker::Result<Db>,
    memory: u64,
    mut options: Options,
    stopper: &Stopper,
    mut begin: impl FnMut(&Arc<Server>, &Listeners),
) -> Result<(), Failed> {
    let mut listeners = None;
    while !stopper.is_told() {
        let db = match open() {
            Err(_) if stopper.is_told() => break,
            opened => opened?,
        };
        let server = Server::new(Arc::new(LocalStore::new(db.clone(), memory)), options.clone())?;
        stopper.attach(&server);
        let listening = match listeners.take() {
            Some(listening) => listening,
            None => Listeners::bind(&server).await?,
        };
        let listening = listeners.insert(listening);
        begin(&server, listening);
        let ended = run(server.clone(), listening).await?;
        // What hands of connections still hold fails from now on.
        tokio::task::block_in_place(|| db.close())?;
        if ended == Ended::Stopped {
            break;
        }
        replication::exchange(&options.dir)?;
        // The copy knows whose it is.
        options.replica_of = None;
    }
    Ok(())
}
