//! How a server is started.

use std::path::PathBuf;

use crate::replication::Source;

/// What commits wait for before their replies go out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fsync {
    /// Until they are on the disk.
    Always,
    /// Until the operating system has them. They are on the disk a moment later.
    #[default]
    EverySecond,
    /// For nothing.
    Never,
}

impl Fsync {
    /// The name that `CONFIG` has for it.
    pub fn name(self) -> &'static str {
        match self {
            Fsync::Always => "always",
            Fsync::EverySecond => "everysec",
            Fsync::Never => "no",
        }
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "always" => Some(Fsync::Always),
            "everysec" => Some(Fsync::EverySecond),
            "no" | "never" => Some(Fsync::Never),
            _ => None,
        }
    }
}

/// Whether clients show certificates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientCertificates {
    /// They are not asked.
    No,
    /// They may. Wrong ones are refused.
    Optional,
    /// They must.
    #[default]
    Required,
}

/// Encrypted connections.
#[derive(Clone, Debug)]
pub struct Tls {
    /// The port to listen on; 0: any that is free.
    pub port: u16,
    /// The certificate and those that lead to its root, in PEM.
    pub cert: PathBuf,
    /// Its private key, in PEM.
    pub key: PathBuf,
    /// Roots that certificates of clients are checked by, in PEM.
    pub ca: Option<PathBuf>,
    /// Whether clients show certificates.
    pub clients: ClientCertificates,
}

/// How connections to a primary are encrypted.
#[derive(Clone, Debug)]
pub struct ReplicaTls {
    /// Roots that the primary's certificate is checked by, in PEM.
    pub ca: PathBuf,
    /// The certificate that the replica shows if the primary asks for one, and its private key, in PEM.
    pub client: Option<(PathBuf, PathBuf)>,
}

/// How a server is started.
#[derive(Clone, Debug)]
pub struct Options {
    /// Addresses to listen on.
    pub bind: Vec<String>,
    /// The port to listen on; 0: any that is free; none: no port.
    pub port: Option<u16>,
    /// The Unix socket to listen on.
    pub unix_socket: Option<PathBuf>,
    /// The directory that copies and backups are made in; none: clients cannot have any made.
    pub backup_dir: Option<PathBuf>,
    /// Encrypted connections, at the same addresses; none: there are none.
    pub tls: Option<Tls>,
    /// The address and port for monitoring over HTTP; none: there is none.
    pub http: Option<String>,
    /// The directory of the database, to tell it to clients.
    pub dir: PathBuf,
    /// The password; empty: none is asked for.
    pub password: String,
    /// The file of users.
    pub acl_file: Option<PathBuf>,
    /// How many numbered databases there are.
    pub databases: usize,
    /// What commits wait for.
    pub fsync: Fsync,
    /// So many connections at the most.
    pub clients_max: usize,
    /// Bytes of requests on their way, and of commands between `MULTI` and `EXEC`, that all connections hold together.
    pub requests_bytes_max: usize,
    /// How many descriptors the process may have; none: that is not known. Some are kept for the engine, and clients have the rest.
    pub descriptors: Option<u64>,
    /// Seconds without a command after which a connection is closed; 0: never.
    pub idle_seconds: u64,
    /// Without a password, clients from other machines are refused.
    pub protected: bool,
    /// It is a replica of this primary.
    pub replica_of: Option<Source>,
    /// The name by which it follows primaries; none: one that its database has.
    pub replica_slot: Option<String>,
    /// The password that a primary asks replicas for; empty: it asks for none.
    pub primary_password: String,
    /// How connections to a primary are encrypted; none: they are not.
    pub replica_tls: Option<ReplicaTls>,
    /// While replicas follow, what is committed is synced after so many milliseconds, if nothing syncs it sooner; 0: only what syncs it anyway does.
    pub replica_sync_ms: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            bind: vec!["127.0.0.1".to_owned()],
            port: Some(6379),
            unix_socket: None,
            backup_dir: None,
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
            primary_password: String::new(),
            replica_tls: None,
            replica_sync_ms: 5,
        }
    }
}
