//! `esker serve`: serves the database over the Redis protocol.

#[cfg(feature = "log")]
pub(super) mod log;
mod settings;
mod system;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{ArgAction, Args, ValueEnum};
use esker::{Db, Tuning};
use esker_server::store::RemoteStore;
use esker_server::{
    ClientCertificates, Failed, Fsync, Given, Listeners, Options, ReplicaTls, Server, Source, Stopper, Tls,
    Upstream as UpstreamOptions, finish_copy, is_slot_name,
};

use crate::Answer;
use crate::args::Opening;
use crate::backup_target::{self, BackupTarget};
use crate::database::{directory, env, when_free};
use crate::failure::{Failure, Result};
use crate::output;
use crate::progress::OpeningProgress;

pub(crate) use self::settings::parse;
use self::system::{SystemState, raise_descriptors, stop_on_signals, tell_system};

/// What a commit waits for before the server replies.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Sync {
    /// The disk
    Always,
    /// The operating system; the disk follows within a second
    Everysec,
    /// Nothing
    #[value(alias = "no")]
    Never,
}

/// Whether clients must present certificates.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum AuthClients {
    /// Required
    Yes,
    /// Not requested
    No,
    /// Optional; invalid certificates are refused
    Optional,
}

/// Where the server listens, and how clients log in.
#[derive(Debug, Args)]
struct ListenArgs {
    /// Addresses to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1", value_delimiter = ',')]
    bind: Vec<String>,
    /// Port to listen on; 0 selects a free one
    #[arg(long, value_name = "PORT", default_value_t = 6379)]
    port: u16,
    /// Listen only on the Unix socket
    #[arg(long)]
    no_port: bool,
    /// Unix socket to listen on
    #[arg(long, alias = "unixsocket", value_name = "PATH")]
    unix_socket: Option<PathBuf>,
    /// Password that clients must give
    #[arg(long, value_name = "PASSWORD", env = "ESKER_PASSWORD", hide_env_values = true)]
    requirepass: Option<String>,
    /// File of users: read at the start and by ACL LOAD, written by ACL SAVE
    #[arg(long, value_name = "PATH")]
    aclfile: Option<PathBuf>,
}

/// Encryption of client connections.
#[derive(Debug, Args)]
struct TlsArgs {
    /// Port for encrypted connections; 0 selects a free one
    #[arg(long, value_name = "PORT")]
    tls_port: Option<u16>,
    /// Certificate in PEM, followed by the chain to its root
    #[arg(long, value_name = "PATH")]
    tls_cert_file: Option<PathBuf>,
    /// Private key of the certificate, in PEM
    #[arg(long, value_name = "PATH")]
    tls_key_file: Option<PathBuf>,
    /// Root certificates that client certificates are verified against, in PEM
    #[arg(long, value_name = "PATH")]
    tls_ca_cert_file: Option<PathBuf>,
    /// Whether clients must present certificates [default: yes with --tls-ca-cert-file, else no]
    #[arg(long, value_name = "WHEN")]
    tls_auth_clients: Option<AuthClients>,
}

/// Replication, as a replica and as a primary.
#[derive(Debug, Args)]
struct ReplicaArgs {
    /// Run as a replica of this primary. `election`: wait for `esker sentinel` to choose a primary
    #[arg(long, value_name = "HOST:PORT|election", value_parser = replica_of)]
    replica_of: Option<Source>,
    /// Name under which the primary knows this replica [default: one stored in its database]
    #[arg(long, value_name = "NAME", value_parser = slot)]
    replica_slot: Option<String>,
    /// Password that the primary requires
    #[arg(long, value_name = "PASSWORD", env = "ESKER_PRIMARY_PASSWORD", hide_env_values = true)]
    masterauth: Option<String>,
    /// User that the replica logs in as at the primary [default: default]
    #[arg(long, value_name = "NAME")]
    masteruser: Option<String>,
    /// Encrypt the connection to the primary and verify its certificate against the roots in this file, in
    /// PEM
    #[arg(long, value_name = "PATH")]
    replica_tls: Option<PathBuf>,
    /// While replicas are connected, sync commits after at most this time; 0 leaves it to --fsync
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 5, value_parser = number())]
    replica_sync_ms: u64,
    /// Bytes of log retained for disconnected replicas; with 0 no replica can follow this server
    #[arg(long, value_name = "BYTES", default_value = "256mb", value_parser = bytes)]
    backlog: u64,
    /// Bytes of log retained for each known replica that is disconnected; 0 retains no more than --backlog
    #[arg(long, value_name = "BYTES", default_value = "1gb", value_parser = bytes)]
    slot_limit: u64,
}

/// Limits of the engine's work.
#[derive(Debug, Args)]
struct LimitArgs {
    /// Write at most this many bytes of keys and values a second, at least 1kb [default: no limit]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    write_rate: Option<u64>,
    /// Let all compactions together read at most this many bytes a second, at least 1mb [default: no limit]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    compaction_rate: Option<u64>,
    /// Let all compactions together take at most this percentage of one processor [default: no limit]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u64).range(1..=100))]
    compaction_percent: Option<u64>,
}

impl LimitArgs {
    fn apply(&self, mut tuning: Tuning) -> Tuning {
        if let Some(bytes) = self.write_rate {
            tuning = tuning.write_rate(bytes);
        }
        if let Some(bytes) = self.compaction_rate {
            tuning = tuning.compaction_rate(bytes);
        }
        if let Some(percent) = self.compaction_percent {
            tuning = tuning.compaction_percent(percent);
        }
        tuning
    }
}

/// Where options come from.
#[derive(Debug, Args)]
struct ConfigArgs {
    /// Read options from this file, in TOML: `port = 6379`. The command line and the environment outrank it
    #[arg(long, value_name = "FILE", env = "ESKER_CONFIG")]
    config: Option<PathBuf>,
    /// Print the options that would be used, and where each comes from. Starts nothing; exit code 2 if an
    /// option is wrong
    #[arg(long)]
    check_config: bool,
    /// All options, as the operator gave them.
    #[arg(skip)]
    given: Given,
}

/// Where the data is.
#[derive(Debug, Args)]
struct DataArgs {
    /// Keep the data in another store instead of a database of Esker's: postgres://, tikv://, slatedb://
    #[arg(long, value_name = "URL", env = "ESKER_STORE", hide_env_values = true, conflicts_with = "db")]
    store: Option<String>,
    /// Replace the server that uses the store
    #[arg(long, requires = "store")]
    take_over: bool,
    /// Directory in which ES.CHECKPOINT and ES.BACKUP create copies and backups, or s3://BUCKET/PREFIX for
    /// backups
    #[arg(long, value_name = "PATH")]
    backup_dir: Option<PathBuf>,
    /// What a commit waits for before the server replies
    #[arg(long, alias = "appendfsync", value_name = "WHEN", default_value = "everysec")]
    fsync: Sync,
    /// Memory of the engine: cache and buffers
    #[arg(long, value_name = "BYTES", default_value = "1gb", value_parser = bytes)]
    memory: u64,
    /// Number of numbered databases
    #[arg(long, value_name = "N", default_value_t = 16)]
    databases: usize,
}

/// The options of `esker serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    config: ConfigArgs,
    #[command(flatten)]
    listen: ListenArgs,
    #[command(flatten)]
    data: DataArgs,
    #[command(flatten)]
    tls: TlsArgs,
    /// Address and port for monitoring over HTTP: /metrics, /health and a page
    #[arg(long, value_name = "ADDRESS:PORT")]
    http: Option<String>,
    /// Maximum number of client connections
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    maxclients: usize,
    /// Close a connection after this many seconds without a command; 0 never does
    #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = number())]
    timeout: u64,
    /// Without a password, refuse clients from other machines
    #[arg(long, value_name = "yes|no", default_value = "yes", value_parser = yes_or_no, action = ArgAction::Set)]
    protected_mode: bool,
    #[command(flatten)]
    replica: ReplicaArgs,
    #[command(flatten)]
    limits: LimitArgs,
    #[cfg(feature = "log")]
    #[command(flatten)]
    log: log::LogArgs,
    /// Threads that serve connections [default: one per processor but one]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
}

fn bytes(text: &str) -> std::result::Result<u64, String> {
    esker_server::bytes_of(text).ok_or_else(|| "a number of bytes, such as 512mb or 2gb".to_owned())
}

/// Returns the parser of numbers that `CONFIG SET` takes, too.
fn number() -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(..=i32::MAX as u64)
}

pub(super) fn source(text: &str) -> std::result::Result<Source, String> {
    let wrong = || "a host and a port, such as db1.example:6379".to_owned();
    let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    let port = port.parse().ok().filter(|port| *port > 0).ok_or_else(wrong)?;
    let host = host.trim_matches(['[', ']']).to_owned();
    if host.is_empty() { Err(wrong()) } else { Ok(Source { host, port }) }
}

fn replica_of(text: &str) -> std::result::Result<Source, String> {
    if text == "election" { Ok(Source::unset()) } else { source(text) }
}

fn slot(text: &str) -> std::result::Result<String, String> {
    let wrong = || "up to 64 letters, digits and ._-".to_owned();
    is_slot_name(text).then(|| text.to_owned()).ok_or_else(wrong)
}

fn yes_or_no(text: &str) -> std::result::Result<bool, String> {
    match text {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err("yes or no".to_owned()),
    }
}

/// Checks options that only make sense together.
fn check_together(args: &ServeArgs) -> Result<()> {
    let ServeArgs { listen, tls, replica, .. } = args;
    let has_tls = tls.tls_port.is_some();
    if args.data.store.is_some() && (replica.replica_of.is_some() || args.data.backup_dir.is_some()) {
        let why = "--replica-of and --backup-dir need a database of Esker's own, not --store";
        return Err(Failure::message(why));
    }
    let pairs = [
        (listen.no_port, listen.unix_socket.is_some(), "--no-port requires --unix-socket"),
        (has_tls, tls.tls_cert_file.is_some(), "--tls-port requires --tls-cert-file"),
        (tls.tls_cert_file.is_some(), tls.tls_key_file.is_some(), "--tls-cert-file requires --tls-key-file"),
        (tls.tls_key_file.is_some(), tls.tls_cert_file.is_some(), "--tls-key-file requires --tls-cert-file"),
        (tls.tls_ca_cert_file.is_some(), has_tls, "--tls-ca-cert-file requires --tls-port"),
        (tls.tls_auth_clients.is_some(), has_tls, "--tls-auth-clients requires --tls-port"),
        (
            tls.tls_cert_file.is_some(),
            has_tls || replica.replica_tls.is_some(),
            "--tls-cert-file requires --tls-port or --replica-tls",
        ),
    ];
    match pairs.iter().find(|(is_given, is_complete, _)| *is_given && !is_complete) {
        Some((.., why)) => Err(Failure::message(*why)),
        None => Ok(()),
    }
}

/// Prints the options that would be used.
fn check_config(opening: &Opening, args: &ServeArgs) -> Result<Answer> {
    #[cfg(feature = "log")]
    args.log.filter()?;
    data_directory(opening, args)?;
    settings::print(&args.config.given.settings)?;
    Ok(Answer::Yes)
}

pub(super) fn run(opening: &Opening, args: &ServeArgs) -> Result<Answer> {
    check_together(args)?;
    if args.config.check_config {
        return check_config(opening, args);
    }
    #[cfg(feature = "log")]
    log::start(&args.log)?;
    let directory = data_directory(opening, args)?;
    // One processor is left to the engine's threads, and to clients on this machine.
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(args.threads.unwrap_or(processors - 1).max(1))
        .enable_all()
        .build()
        .map_err(|error| Failure::message(format!("start threads: {error}")))?;
    // From here on a signal stops the server cleanly instead of ending the process.
    let stopper = Stopper::default();
    runtime.block_on(async { stop_on_signals(&stopper) });
    let options = Options { descriptors: raise_descriptors(), ..options(args, &directory)? };
    let mut is_first = true;
    let begin = |server: &Arc<Server>, listeners: &Listeners| {
        begin(args, server, listeners, std::mem::take(&mut is_first));
    };
    match &args.data.store {
        Some(url) => {
            let store = open_store(url, args.data.take_over)?;
            runtime.block_on(esker_server::serve_store(store, options, &stopper, begin))
        }
        None => {
            finish_copy(&directory).map_err(|error| {
                let directory = directory.display();
                Failure::message(format!("move the copy of the primary's database into {directory}: {error}"))
            })?;
            let open = opener(opening, args, &directory, &stopper)?;
            runtime.block_on(esker_server::serve(open, args.data.memory, options, &stopper, begin))
        }
    }
    .map_err(|error| match error {
        Failed::System(error) => Failure::message(error.to_string()),
        Failed::Engine(error) => Failure::Engine(directory.clone(), error),
    })?;
    tell_system(&[SystemState::Stopping]);
    runtime.shutdown_timeout(Duration::from_secs(1));
    output::print_message(format_args!("esker: stopped"));
    Ok(Answer::Yes)
}

/// Returns the directory of the database; with another store, the current one.
fn data_directory(opening: &Opening, args: &ServeArgs) -> Result<PathBuf> {
    match &args.data.store {
        Some(_) => Ok(PathBuf::from(".")),
        None => directory(opening),
    }
}

/// Opens another store, and makes this server its owner.
fn open_store(url: &str, takes_over: bool) -> Result<RemoteStore> {
    let failed = |error: String| Failure::message(format!("--store: {error}"));
    let kv = esker_kv::connect(url).map_err(|error| failed(error.to_string()))?;
    RemoteStore::open(kv, takes_over).map_err(|error| failed(error.to_string()))
}

/// Returns the function that opens the database, also again after a copy was received.
fn opener<'a>(
    opening: &'a Opening,
    args: &'a ServeArgs,
    directory: &'a Path,
    stopper: &'a Stopper,
) -> Result<impl FnMut() -> esker::Result<Db> + 'a> {
    let env = env(opening)?;
    Ok(move || {
        let builder = Db::builder().env(env.clone()).memory(args.data.memory);
        let builder = builder
            .feed_retention(args.replica.backlog, Duration::MAX)
            .tuning(|t| args.limits.apply(t.feed_hold(args.replica.slot_limit)));
        let progress = OpeningProgress::default();
        let builder = builder.on_event(move |event| {
            progress.note(event);
            esker_server::trace_engine(event);
        });
        when_free(opening.wait, || match stopper.is_requested() {
            true => Err(esker::Error::Closed),
            false => builder.clone().open(directory),
        })
    })
}

/// Reports a server that starts.
fn begin(args: &ServeArgs, server: &Arc<Server>, listeners: &Listeners, is_first: bool) {
    if !is_first {
        output::print_message(format_args!("esker: continues with the copy of its primary's database"));
        return;
    }
    let clients = server.config.connections.clients();
    if clients < args.maxclients {
        output::print_message(format_args!(
            "esker: accepts {clients} clients instead of {}: the limit of open descriptors is too low (ulimit -n)",
            args.maxclients
        ));
    }
    for address in listeners.addresses() {
        output::print_message(format_args!("esker: listens on {address}"));
    }
    tell_system(&[SystemState::Ready]);
}

fn options(args: &ServeArgs, directory: &Path) -> Result<Options> {
    let backups = args.data.backup_dir.as_deref().map(backups_in).transpose()?;
    let fsync = match args.data.fsync {
        Sync::Always => Fsync::Always,
        Sync::Everysec => Fsync::EverySecond,
        Sync::Never => Fsync::Never,
    };
    Ok(Options {
        bind: args.listen.bind.clone(),
        port: (!args.listen.no_port).then_some(args.listen.port),
        unix_socket: args.listen.unix_socket.clone(),
        dir: directory.to_path_buf(),
        password: args.listen.requirepass.clone().unwrap_or_default(),
        acl_file: args.listen.aclfile.clone(),
        backups,
        tls: tls(&args.tls),
        http: args.http.clone(),
        databases: args.data.databases,
        fsync,
        clients_max: args.maxclients,
        requests_bytes_max: usize::try_from(args.data.memory).unwrap_or(usize::MAX),
        idle_seconds: args.timeout,
        protected: args.protected_mode,
        replica_of: args.replica.replica_of.clone(),
        replica_slot: args.replica.replica_slot.clone(),
        upstream: UpstreamOptions {
            user: args.replica.masteruser.clone().unwrap_or_default(),
            password: args.replica.masterauth.clone().unwrap_or_default(),
            tls: args.replica.replica_tls.clone().map(|ca| ReplicaTls {
                ca,
                client: args.tls.tls_cert_file.clone().zip(args.tls.tls_key_file.clone()),
            }),
        },
        replica_sync_ms: args.replica.replica_sync_ms,
        descriptors: None,
        given: args.config.given.clone(),
    })
}

/// Returns where clients may have backups made.
fn backups_in(place: &Path) -> Result<esker_server::BackupTarget> {
    Ok(match BackupTarget::of(place)? {
        BackupTarget::Directory(directory) => esker_server::BackupTarget::Directory(directory),
        BackupTarget::Store(url) => esker_server::BackupTarget::Store(Arc::new(backup_target::store(&url)?)),
    })
}

/// Returns the TLS settings if a TLS port is given.
fn tls(args: &TlsArgs) -> Option<Tls> {
    let clients = match (args.tls_auth_clients, &args.tls_ca_cert_file) {
        (Some(AuthClients::Yes), _) | (None, Some(_)) => ClientCertificates::Required,
        (Some(AuthClients::Optional), _) => ClientCertificates::Optional,
        (Some(AuthClients::No), _) | (None, None) => ClientCertificates::No,
    };
    Some(Tls {
        port: args.tls_port?,
        cert: args.tls_cert_file.clone()?,
        key: args.tls_key_file.clone()?,
        ca: args.tls_ca_cert_file.clone(),
        clients,
    })
}
