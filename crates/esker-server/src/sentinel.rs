//! `esker sentinel`: watches a primary and its replicas. If the primary fails, a replica takes over.
//!
//! ```text
//!   watch: probe all servers --> plan --> orders: fence, lead, follow, join (replication/ballot.rs)
//!     ^                           ^
//!     `------ etcd: record -------'       the ballot, the primary, the servers; the acting sentinel
//!   listen: Redis Sentinel's protocol <-- board: what `watch` has last seen
//! ```
//!
//! sentinel.1. Each attempt at an election takes a ballot of its own from etcd, by compare-and-put. So no two
//!     sentinels, and no two attempts, use the same ballot.
//! sentinel.2. A confirmed write is on the disks of the primary and of `quorum` replicas. An election first
//!     fences all servers but `quorum`, so at least one fenced server has each confirmed write. The fenced
//!     server with the newest commit leads (choice.rs).
//! sentinel.3. The servers enforce both. The lease in etcd, which says which sentinel acts, only keeps them
//!     from disturbing one another. So neither a slow sentinel nor a wrong clock loses a write.
//!
//! For users: docs/server.md, `Automatic failover`.

mod board;
pub(crate) mod choice;
mod etcd;
mod listen;
mod plan;
mod record;
mod reply;
mod servers;
mod watch;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::config::source::Source;

/// What a sentinel needs to know.
#[derive(Clone, Debug)]
pub struct SentinelOptions {
    /// The name that clients ask for.
    pub name: String,
    /// All servers. Each is known to the others and to clients by this address.
    pub servers: Vec<Source>,
    /// The number of replicas that confirm a write.
    pub quorum: usize,
    /// The primary to begin with, the first time.
    pub primary: Option<Source>,
    /// Addresses of etcd, `http://host:port`.
    pub etcd: Vec<String>,
    /// How long the primary has to be silent.
    pub down_after: Duration,
    /// How often all servers are asked.
    pub interval: Duration,
    /// The user to log in as at the servers, and the password.
    pub login: Option<(String, String)>,
    /// The address at which clients and other sentinels reach this one.
    pub announce: SocketAddr,
}

impl SentinelOptions {
    /// Checks the options.
    ///
    /// # Errors
    /// What is wrong, and what to do.
    pub fn check(&self) -> Result<(), String> {
        let is_repeated = |(at, server)| self.servers[..at].contains(server);
        if let Some((_, twice)) = self.servers.iter().enumerate().find(|entry| is_repeated(*entry)) {
            return Err(format!("the server {twice} is given twice"));
        }
        if self.servers.len() < 2 {
            return Err("give at least two servers: one leads, and the others follow".to_owned());
        }
        if self.quorum == 0 || self.quorum >= self.servers.len() {
            return Err(format!(
                "the quorum is the number of replicas that confirm a write: 1 to {} with {} servers",
                self.servers.len() - 1,
                self.servers.len()
            ));
        }
        if let Some(primary) = self.primary.as_ref().filter(|primary| !self.servers.contains(primary)) {
            return Err(format!("the primary {primary} is not one of the servers"));
        }
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if self.name.is_empty() || !self.name.bytes().all(is_name) {
            return Err("the name consists of letters, digits and ._-".to_owned());
        }
        Ok(())
    }
}

/// Runs a sentinel until `stop` is set.
///
/// # Errors
/// The options do not fit what etcd has of this name, or etcd does not answer at the start.
pub fn run(options: SentinelOptions, listener: TcpListener, stop: &Arc<AtomicBool>) -> Result<(), String> {
    options.check()?;
    let watch = watch::Watch::open(options)?;
    let board = watch.board();
    listener.set_nonblocking(true).map_err(|error| format!("listen: {error}"))?;
    #[expect(clippy::disallowed_methods, reason = "no data is behind it that could be simulated")]
    let listening = std::thread::spawn({
        let stop = stop.clone();
        move || listen::run(&listener, &board, &stop)
    });
    watch.run(stop);
    stop.store(true, Ordering::Relaxed);
    listening.join().map_err(|_| "the thread that listens has failed".to_owned())
}
