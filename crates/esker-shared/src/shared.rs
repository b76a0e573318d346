//! `Shared`: a database that several processes write.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use esker::{Builder, Db, KeyspaceOptions};

use crate::batch::SharedBatch;
use crate::commit_id::{ASKING_MAX, CommitId, Outcome};
use crate::error::{Error, Result};
use crate::inner::{Opened, Settings};
use crate::keyspace::SharedKeyspace;
use crate::protocol::{Bytes, Opening, Reply, Request};
use crate::snapshot::SharedSnapshot;
use crate::transact::TransactionOptions;
use crate::transaction::SharedTransaction;
use crate::transport::{Transport, unresolved};

/// How to open a shared database.
#[derive(Clone, Debug)]
pub struct SharedBuilder {
    settings: Settings,
}

impl Default for SharedBuilder {
    fn default() -> Self {
        let (wait, idle_max) = (Duration::from_secs(30), Duration::from_secs(10));
        let (builder, transport) = (Builder::default(), Transport::Socket);
        SharedBuilder { settings: Settings { builder, wait, idle_max, transport } }
    }
}

impl SharedBuilder {
    /// Options of the engine, for the time in which this process is the host. Use the same ones in all
    /// processes: any of them can become the host.
    pub fn engine(mut self, builder: Builder) -> Self {
        self.settings.builder = builder;
        self
    }

    /// How long a call waits for a host, and again for its reply. Default 30 s, at most 5 min. The recovery
    /// of a host that was killed counts. Longer than [`Builder::lock_patience`], or a wait for a lock looks
    /// like a host that does not answer.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.settings.wait = wait.min(ASKING_MAX / 2);
        self
    }

    /// How long a guest's transaction may send nothing before the host ends it, because other commits may
    /// wait for it. Default 10 s. A body of [`Shared::transact`] that pauses for longer each time never
    /// commits.
    pub fn transaction_idle(mut self, time: Duration) -> Self {
        self.settings.idle_max = time.max(Duration::from_millis(1));
        self
    }

    /// Reaches other processes through a simulated network. Not part of the API.
    #[cfg(feature = "simulation")]
    #[doc(hidden)]
    pub fn network(mut self, network: &crate::simulation::Network) -> Self {
        self.settings.transport = Transport::Simulated(network.clone());
        self
    }

    /// Opens the database in a directory, as its host or as a guest of its host.
    ///
    /// # Errors
    /// Those of [`Builder::open`] as [`Error::Db`]; [`Error::NoHost`] if another process has it open and does
    /// not serve it; [`Error::Version`]; [`Error::PathTooLong`].
    pub fn open(self, path: impl AsRef<Path>) -> Result<Shared> {
        let dir = self.settings.transport.dir(path.as_ref()).map_err(|e| unresolved(path.as_ref(), e))?;
        Ok(Shared { inner: Opened::open(dir, self.settings)? })
    }
}

/// A database that several processes write. Clones share it.
///
/// One process, the host, has the directory's lock and serves the others, its guests, through a socket in the
/// directory. When it goes, one of them takes over. See the [crate](crate).
#[derive(Clone)]
pub struct Shared {
    inner: Arc<Opened>,
}

impl Shared {
    /// Opens the database in a directory with the default options: see [`SharedBuilder::open`].
    ///
    /// # Errors
    /// Those of [`SharedBuilder::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::builder().open(path)
    }

    /// Options.
    pub fn builder() -> SharedBuilder {
        SharedBuilder::default()
    }

    /// The engine's handle, while this process is the host. A host stays the host until it closes. Everything
    /// that the engine can do works with it, at its speed. Closing it closes the shared database.
    pub fn db(&self) -> Option<Db> {
        self.inner.host().map(|host| host.db.clone())
    }

    /// Whether this process is the host.
    pub fn is_host(&self) -> bool {
        self.inner.host().is_some()
    }

    /// Opens the keyspace with this name, and creates it if it is missing.
    ///
    /// # Errors
    /// Those of [`esker::Db::keyspace`] as [`Error::Db`]; [`Error::NoHost`].
    pub fn keyspace(&self, name: &str) -> Result<SharedKeyspace> {
        self.keyspace_by(name, Opening::CreateIfMissing)
    }

    /// Opens the keyspace with this name.
    ///
    /// # Errors
    /// Those of [`keyspace`](Self::keyspace).
    pub fn open_keyspace(&self, name: &str) -> Result<SharedKeyspace> {
        self.keyspace_by(name, Opening::Existing)
    }

    /// Creates a keyspace with these options. If the host goes before it answers, the keyspace may exist.
    ///
    /// # Errors
    /// Those of [`keyspace`](Self::keyspace); [`Error::HostGone`].
    pub fn create_keyspace_with(&self, name: &str, options: &KeyspaceOptions) -> Result<SharedKeyspace> {
        let options = options.to_bytes(name)?;
        let reply = self.once(&Request::Keyspace(name, Opening::Create(Bytes(&options))))?;
        Ok(SharedKeyspace::new(&self.inner, reply.into_keyspace()?))
    }

    fn keyspace_by(&self, name: &str, opening: Opening<'_>) -> Result<SharedKeyspace> {
        let reply = self.inner.read(&Request::Keyspace(name, opening))?;
        Ok(SharedKeyspace::new(&self.inner, reply.into_keyspace()?))
    }

    /// Names of all keyspaces, without the one that holds this crate's records.
    ///
    /// # Errors
    /// Those of [`keyspace`](Self::keyspace).
    pub fn keyspaces(&self) -> Result<Vec<String>> {
        self.inner.read(&Request::Keyspaces)?.into_names()
    }

    /// Drops a keyspace. If the host goes before it answers, the keyspace may be dropped.
    ///
    /// # Errors
    /// Those of [`keyspace`](Self::keyspace); [`Error::HostGone`].
    pub fn drop_keyspace(&self, name: &str) -> Result<()> {
        self.once(&Request::DropKeyspace(name)).map(drop)
    }

    /// Renames a keyspace. If the host goes before it answers, the keyspace may have the new name.
    ///
    /// # Errors
    /// Those of [`keyspace`](Self::keyspace); [`Error::HostGone`].
    pub fn rename_keyspace(&self, from: &str, to: &str) -> Result<()> {
        self.once(&Request::RenameKeyspace(from, to)).map(drop)
    }

    /// Runs a request that is not repeated, because it may have been run.
    fn once(&self, request: &Request<'_>) -> Result<Reply> {
        // A pooled connection may have ended long ago.
        self.inner.read(&Request::Keyspaces)?;
        let mut link = self.inner.link(self.inner.deadline())?;
        let reply = self.inner.ask(&mut link, request);
        self.inner.give_back(link);
        reply
    }

    /// Returns an empty batch.
    pub fn batch(&self) -> SharedBatch {
        SharedBatch::new(&self.inner)
    }

    /// Returns a snapshot of the newest commit.
    ///
    /// # Errors
    /// Those of [`keyspace`](Self::keyspace).
    pub fn snapshot(&self) -> Result<SharedSnapshot> {
        SharedSnapshot::new(&self.inner)
    }

    /// Options of one transaction.
    pub fn transaction(&self) -> TransactionOptions {
        TransactionOptions::new(&self.inner)
    }

    /// Begins a serializable transaction.
    ///
    /// # Errors
    /// Those of [`keyspace`](Self::keyspace).
    pub fn begin(&self) -> Result<SharedTransaction> {
        self.transaction().begin()
    }

    /// Runs `body` in a serializable transaction and commits it. Runs it again after a conflict or deadlock,
    /// and if the host goes before it has committed. So `body` must have no effects outside the database, and
    /// make no other commits: they would wait for an exclusive attempt. After eight attempts other commits
    /// wait while it runs.
    ///
    /// # Errors
    /// Those of `body`, and [`Error::Db`], [`Error::NoHost`], [`Error::OutcomeUnknown`].
    pub fn transact<T, E: From<Error>>(
        &self,
        body: impl FnMut(&mut SharedTransaction) -> Result<T, E>,
    ) -> Result<T, E> {
        self.transaction().run(body)
    }

    /// Asks what became of a commit that failed with [`Error::OutcomeUnknown`], at most 10 min after it. If
    /// the answer is [`Outcome::NotApplied`], it never will be applied.
    ///
    /// # Errors
    /// [`Error::OutcomeUnknown`]; the engine's [`Forked`](esker::Error::Forked).
    pub fn outcome(&self, id: &CommitId) -> Result<Outcome> {
        self.inner.outcome(id)
    }

    /// Makes all earlier commits durable.
    ///
    /// # Errors
    /// Those of [`keyspace`](Self::keyspace).
    pub fn sync(&self) -> Result<()> {
        self.inner.read(&Request::Sync).map(drop)
    }

    /// Closes this process's part. A host finishes the requests that run, ends its guests' connections and
    /// closes the database; then one of them takes over. Dropping the last handle does the same.
    ///
    /// # Errors
    /// Those of [`Db::close`].
    pub fn close(self) -> Result<()> {
        self.inner.close()
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let role = if self.is_host() { "host" } else { "guest" };
        write!(f, "Shared({:?}, {role})", self.inner.dir)
    }
}
