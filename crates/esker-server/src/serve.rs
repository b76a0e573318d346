//! Serves a database until it is told to stop. A replica that has got a copy of its primary's database begins anew with that one.
//!
//! ```text
//!   open --> Server --run--> Stopped: close
//!     ^                 `--> HasCopy: close, exchange the directories --.
//!     `----------------------------------------------------------------'
//! ```

use std::sync::Arc;

use esker::Db;

use crate::listen::{Ended, Listeners, run};
use crate::options::Options;
use crate::replication;
use crate::server::Server;
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

/// Serves what `open` opens, with `memory` bytes, until the server is told to stop. `begin` is shown each server as it begins. The database is closed at the end.
///
/// # Errors
/// What has ended it.
pub async fn serve(
    mut open: impl FnMut() -> esker::Result<Db>,
    memory: u64,
    mut options: Options,
    mut begin: impl FnMut(&Arc<Server>, &Listeners),
) -> Result<(), Failed> {
    let mut listeners = None;
    loop {
        let db = open()?;
        let server = Server::new(Arc::new(LocalStore::new(db.clone(), memory)), options.clone())?;
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
            return Ok(());
        }
        replication::exchange(&options.dir)?;
        // The copy knows whose it is.
        options.replica_of = None;
    }
}
