//! The options that a server is started with.

use crate::config::setting::Given;
use crate::config::source::Source;
use std::path::PathBuf;
use std::sync::Arc;

use esker::backup::BackupStore;

/// What commits wait for before their replies are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fsync {
    /// The disk.
    Always,
    /// The operating system. The commits reach the disk shortly after.
    #[default]
    EverySecond,
    /// Nothing.
    Never,
}

impl Fsync {
    /// Its name in `CONFIG`.
    pub fn name(self) -> &'static str {
        match self {
            Fsync::Always => "always",
            Fsync::EverySecond => "everysec",
            Fsync::Never => "no",
        }
    }

    /// Returns the variant with this name.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "always" => Some(Fsync::Always),
            "everysec" => Some(Fsync::EverySecond),
            "no" | "never" => Some(Fsync::Never),
            _ => None,
        }
    }
}

/// Whether clients have to present certificates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientCertificates {
    /// Certificates are not requested.
    No,
    /// Certificates are optional. Wrong ones are refused.
    Optional,
    /// Certificates are required.
    #[default]
    Required,
}

/// Encrypted connections.
#[derive(Clone, Debug)]
pub struct Tls {
    /// The port to listen on; 0: any free port.
    pub port: u16,
    /// The certificate chain, in PEM.
    pub cert: PathBuf,
    /// Its private key, in PEM.
    pub key: PathBuf,
    /// Root certificates for the certificates of clients, in PEM.
    pub ca: Option<PathBuf>,
    /// Whether clients have to present certificates.
    pub clients: ClientCertificates,
}

/// How connections to a primary are encrypted.
#[derive(Clone, Debug)]
pub struct ReplicaTls {
    /// Root certificates for the primary's certificate, in PEM.
    pub ca: PathBuf,
    /// Certificate and private key that the replica presents on request, in PEM.
    pub client: Option<(PathBuf, PathBuf)>,
}

/// Connections to a primary.
#[derive(Clone, Debug, Default)]
pub struct Upstream {
    /// The user to log in as; empty: `default`.
    pub user: String,
    /// The password; empty: none is needed.
    pub password: String,
    /// Encryption, if any.
    pub tls: Option<ReplicaTls>,
}

/// Where clients may have copies and backups made.
#[derive(Clone, Debug)]
pub enum BackupTarget {
    /// In a directory.
    Directory(PathBuf),
    /// Backups in object storage. Copies cannot be made there.
    Store(Arc<dyn BackupStore>),
}

/// The options of a server.
#[derive(Clone, Debug)]
pub struct Options {
    /// Addresses to listen on.
    pub bind: Vec<String>,
    /// The port to listen on; 0: any free port; `None`: no port.
    pub port: Option<u16>,
    /// The Unix socket to listen on.
    pub unix_socket: Option<PathBuf>,
    /// Where clients may have copies and backups made; `None`: they cannot make any.
    pub backups: Option<BackupTarget>,
    /// Encrypted connections at the same addresses, if any.
    pub tls: Option<Tls>,
    /// Address and port for monitoring over HTTP, if any.
    pub http: Option<String>,
    /// The directory of the database, as reported to clients.
    pub dir: PathBuf,
    /// The password; empty: none is required.
    pub password: String,
    /// The file of users.
    pub acl_file: Option<PathBuf>,
    /// Number of numbered databases.
    pub databases: usize,
    /// What commits wait for.
    pub fsync: Fsync,
    /// Maximum number of connections.
    pub clients_max: usize,
    /// Maximum bytes of incomplete requests, and of commands between `MULTI` and `EXEC`, of all connections
    /// together.
    pub requests_bytes_max: usize,
    /// Descriptors that the process may have, if known. Some are kept for the engine; clients get the rest.
    pub descriptors: Option<u64>,
    /// Seconds without a command after which a connection is closed; 0: never.
    pub idle_seconds: u64,
    /// Without a password, clients from other machines are refused.
    pub protected: bool,
    /// The primary that it follows, if it is a replica. Unset: it waits until an election decides.
    pub replica_of: Option<Source>,
    /// The name under which it follows primaries. `None`: the one in its database.
    pub replica_slot: Option<String>,
    /// Connections to a primary.
    pub upstream: Upstream,
    /// Milliseconds after which commits are synced while replicas follow, if nothing syncs them sooner; 0: no
    /// extra syncs.
    pub replica_sync_ms: u64,
    /// The options as the operator gave them.
    pub given: Given,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            bind: vec!["127.0.0.1".to_owned()],
            port: Some(6379),
            unix_socket: None,
            backups: None,
            tls: None,
            http: None,
            dir: PathBuf::new(),
            password: String::new(),
            acl_file: None,
            databases: 16,
            fsync: Fsync::default(),
            clients_max: 10_000,
            requests_bytes_max: 1 << 30,
            descriptors: None,
            idle_seconds: 0,
            protected: true,
            replica_of: None,
            replica_slot: None,
            upstream: Upstream::default(),
            replica_sync_ms: 5,
            given: Given::default(),
        }
    }
}
