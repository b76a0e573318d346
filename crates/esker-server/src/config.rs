//! Parameters of `CONFIG GET` and `CONFIG SET`: those with a meaning here, and those that clients and test
//! suites expect.
//!
//! - A parameter without meaning here returns the value it was set to.
//! - A parameter without meaning here that promises safety accepts only the value that promises nothing.
//! - A value is checked by the type of its parameter, whatever the previous value.

pub mod file;
mod kind;
mod limits;
pub mod options;
mod safety;
pub mod setting;
pub mod source;
mod values;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

use self::kind::{KNOBS, OWN};
use self::limits::{ConnectionLimits, KEEPALIVE_SECONDS, QUERY_BYTES_MAX};
use self::safety::Safety;
use self::values::Values;
use crate::base::accesses::Accesses;
use crate::base::clock;
use crate::base::events::{Event, events_of, letters_of};
use crate::clients::outbox::{DEFAULT_LIMITS, OutputLimits};
use crate::config::options::{Fsync, Options};
use crate::resp::numbers::{bytes_of, parse_int};
use crate::store::Durability;

pub use self::kind::Kind;

/// Requests over HTTP that are served at once.
pub const HTTP_AT_ONCE: usize = 64;

/// Parameters that promise safety which the server does not give, or rights which it never gives by default.
/// They keep their value.
const PROMISES: &[(&str, &str, &str)] = &[
    (
        "acl-pubsub-default",
        "resetchannels",
        "a new user has no channels: give some by ACL SETUSER name &pattern",
    ),
    ("aof-load-truncated", "yes", "a log that ends in the midst of a commit is always opened without it"),
    ("maxmemory", "0", "data is on disk and is never evicted; --memory bounds the engine's memory"),
    ("maxmemory-policy", "noeviction", "keys are never evicted"),
    ("proto-max-bulk-len", "536870912", "the limit of a word is fixed"),
    ("replica-read-only", "yes", "replicas never take writes"),
    ("replica-serve-stale-data", "yes", "replicas always serve reads; ES.READ AFTER waits for a commit"),
    ("slave-read-only", "yes", "replicas never take writes"),
    ("slave-serve-stale-data", "yes", "replicas always serve reads; ES.READ AFTER waits for a commit"),
    ("stop-writes-on-bgsave-error", "yes", "writes stop when the log cannot be written, and only then"),
];

/// Pairs of parameters that are the same. Their values change together. The configuration file and the
/// command line have one option for both, with the first name.
pub const SYNONYMS: [[&str; 2]; 3] = [
    ["busy-reply-threshold", "lua-time-limit"],
    ["min-replicas-max-lag", "min-slaves-max-lag"],
    ["min-replicas-to-write", "min-slaves-to-write"],
];

/// Begins the errors of `CONFIG SET`, before the name.
const REFUSED: &str = "ERR CONFIG SET failed (possibly related to argument ";

/// Parameters that cannot be set while the server runs.
const FIXED: &[&str] =
    &["aclfile", "bind", "databases", "dir", "port", "unixsocket", "cluster-enabled", "daemonize"];

/// The current parameters.
pub struct Config {
    values: Values,
    /// Classes of published events. Relaxed, like the others: each command reads them again.
    events: AtomicU32,
    fsync: AtomicU32,
    protected: AtomicU32,
    latency: Latency,
    /// What the server demands of its replicas.
    pub safety: Safety,
    replica_sync_ms: AtomicU64,
    busy_ms: AtomicU64,
    output: Arc<OutputLimits>,
    /// Limits of connections.
    pub connections: ConnectionLimits,
    /// Accesses to keys (`track-accesses`).
    pub accesses: Accesses,
    /// The largest `maxclients` that leaves the engine enough descriptors.
    bounds: Bounds,
}

/// What is recorded about slow work. Relaxed, like the others.
struct Latency {
    slow_micros: AtomicI64,
    event_ms: AtomicU64,
    is_tracked: AtomicU32,
}

/// Maximum number of descriptors for tables of the engine, which otherwise get half of the process's
/// descriptors.
const TABLES_MAX: u64 = 4096;
/// Descriptors kept for logs, directories, listeners, and connections that are refused.
const KEPT_DESCRIPTORS: u64 = 64;

/// Number of connections that the process's descriptors allow.
#[derive(Debug)]
struct Bounds {
    clients: u64,
    /// HTTP connections.
    http: usize,
}

impl Bounds {
    fn of(options: &Options) -> Self {
        let http = if options.http.is_some() { HTTP_AT_ONCE as u64 } else { 0 };
        let Some(descriptors) = options.descriptors else {
            return Bounds { clients: u64::MAX, http: http as usize };
        };
        let kept = (descriptors / 2).min(TABLES_MAX) + KEPT_DESCRIPTORS.min(descriptors / 4);
        // Clients get at least half of the rest.
        let left = descriptors.saturating_sub(kept);
        let http = http.min(left / 2);
        Bounds { clients: (left - http).max(1), http: http.max(1) as usize }
    }
}

/// Sizes of the table of accesses.
const ACCESS_BYTES: RangeInclusive<u64> = 64 << 10..=64 << 30;

impl Config {
    /// Returns the parameters for a server with these options.
    pub fn new(options: &Options) -> Self {
        let bounds = Bounds::of(options);
        let clients_max = bounds.clients.min(options.clients_max as u64);
        let path = |path: Option<&PathBuf>| path.map_or(String::new(), |path| path.display().to_string());
        let own = [
            ("aclfile", path(options.acl_file.as_ref())),
            ("appendfsync", options.fsync.name().to_owned()),
            ("bind", options.bind.join(" ")),
            ("client-output-buffer-limit", DEFAULT_LIMITS.to_owned()),
            ("client-query-buffer-limit", QUERY_BYTES_MAX.to_string()),
            ("databases", options.databases.to_string()),
            ("dir", options.dir.display().to_string()),
            ("masterauth", options.upstream.password.clone()),
            ("masteruser", options.upstream.user.clone()),
            ("maxclients", clients_max.to_string()),
            ("maxclients-per-address", "0".to_owned()),
            ("maxmemory-clients", "0".to_owned()),
            ("notify-keyspace-events", String::new()),
            ("transaction-timeout", "60".to_owned()),
            ("port", options.port.unwrap_or(0).to_string()),
            ("protected-mode", if options.protected { "yes" } else { "no" }.to_owned()),
            ("replica-sync-ms", options.replica_sync_ms.to_string()),
            ("requirepass", options.password.clone()),
            ("tcp-keepalive", KEEPALIVE_SECONDS.to_string()),
            ("timeout", options.idle_seconds.to_string()),
            ("unixsocket", path(options.unix_socket.as_ref())),
        ];
        let mut values: BTreeMap<_, _> = certificates(options).into();
        values.extend(KNOBS.iter().map(|(name, _, value)| ((*name).to_owned(), (*value).to_owned())));
        values.extend(PROMISES.iter().map(|(name, value, _)| ((*name).to_owned(), (*value).to_owned())));
        let shown = options.given.settings.iter().map(|shown| (shown.parameter.clone(), shown.value.clone()));
        values.extend(shown);
        values.extend(own.into_iter().map(|(name, value)| (name.to_owned(), value)));
        Config {
            values: Values::new(values, &options.given),
            events: AtomicU32::new(0),
            fsync: AtomicU32::new(options.fsync as u32),
            protected: AtomicU32::new(u32::from(options.protected)),
            latency: Latency {
                slow_micros: AtomicI64::new(10_000),
                event_ms: AtomicU64::new(0),
                is_tracked: AtomicU32::new(1),
            },
            safety: Safety::default(),
            replica_sync_ms: AtomicU64::new(options.replica_sync_ms),
            busy_ms: AtomicU64::new(5000),
            output: Arc::default(),
            connections: ConnectionLimits::of(options, clients_max),
            accesses: Accesses::new(),
            bounds,
        }
    }

    /// Sets parameters to their first values.
    ///
    /// # Errors
    /// What is wrong.
    pub fn begin_with(&self, pairs: &[(String, String)]) -> Result<(), String> {
        self.set(pairs)?;
        self.values.forget_changes();
        Ok(())
    }

    /// Returns the names and values of what `CONFIG SET` has changed.
    pub fn changes(&self) -> Vec<(String, String)> {
        self.values.changes()
    }

    /// Returns the maximum number of HTTP connections.
    pub fn http_max(&self) -> usize {
        self.bounds.http
    }

    /// Returns the limits of clients' output.
    pub fn output_limits(&self) -> &Arc<OutputLimits> {
        &self.output
    }

    /// Returns the classes of published key events.
    #[inline]
    pub fn events(&self) -> u32 {
        self.events.load(Ordering::Relaxed)
    }

    /// Returns whether events of this class are published.
    pub fn wants(&self, event: Event) -> bool {
        self.events() >> event as u32 & 1 == 1
    }

    /// Returns what commits wait for. Only durable commits are sent to replicas, so with `write-quorum` they
    /// wait for the disk.
    pub fn durability(&self) -> Durability {
        if self.safety.quorum() > 0 {
            return Durability::Sync;
        }
        match self.fsync.load(Ordering::Relaxed) {
            n if n == Fsync::Always as u32 => Durability::Sync,
            n if n == Fsync::EverySecond as u32 => Durability::Buffered,
            _ => Durability::None,
        }
    }

    /// Returns the microseconds from which commands are logged as slow; negative: none are.
    pub fn slow_micros(&self) -> i64 {
        self.latency.slow_micros.load(Ordering::Relaxed)
    }

    /// Returns the milliseconds from which work is recorded as a latency event; 0: none is.
    pub fn latency_ms(&self) -> u64 {
        self.latency.event_ms.load(Ordering::Relaxed)
    }

    /// Returns whether latencies of commands are recorded.
    #[inline]
    pub fn tracks_latency(&self) -> bool {
        self.latency.is_tracked.load(Ordering::Relaxed) != 0
    }

    /// Returns the milliseconds after which commits are synced for replicas; 0: they are not.
    pub fn replica_sync_ms(&self) -> u64 {
        self.replica_sync_ms.load(Ordering::Relaxed)
    }

    /// Returns the number of refused requests kept for `ACL LOG`.
    pub fn refusals_max(&self) -> usize {
        self.number("acllog-max-len").max(0) as usize
    }

    /// Returns the milliseconds of a script's run after which other commands are refused; 0: they wait.
    pub fn busy_ms(&self) -> u64 {
        self.busy_ms.load(Ordering::Relaxed)
    }

    /// Returns whether unauthenticated clients from other machines are refused.
    pub fn is_protected(&self) -> bool {
        self.protected.load(Ordering::Relaxed) != 0
    }

    /// Returns the names and values of all parameters that match one of the patterns.
    pub fn find(&self, patterns: &[&[u8]]) -> Vec<(String, String)> {
        self.values.find(|name| is_meant(name, patterns))
    }

    /// Returns the value of a parameter.
    pub fn get(&self, name: &str) -> Option<String> {
        self.values.get(name)
    }

    /// Returns the value of a parameter as a number.
    pub fn number(&self, name: &str) -> i64 {
        self.get(name).and_then(|value| parse_int(value.as_bytes())).unwrap_or(0)
    }

    /// Returns whether a switch is on.
    pub fn is_on(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| value == "yes")
    }

    /// Sets parameters, all or none.
    ///
    /// # Errors
    /// What is wrong.
    pub fn set(&self, pairs: &[(String, String)]) -> Result<(), String> {
        let mut pairs = self.check(pairs)?;
        // They have this value already.
        pairs.retain(|(name, _)| !is_fixed(name));
        for names in SYNONYMS {
            for (name, other) in [(names[0], names[1]), (names[1], names[0])] {
                let set = pairs.iter().find(|pair| pair.0 == name).map(|pair| pair.1.clone());
                if let Some(value) = set.filter(|_| !pairs.iter().any(|pair| pair.0 == other)) {
                    pairs.push((other.to_owned(), value));
                }
            }
        }
        for (name, value) in &pairs {
            self.apply(name, value);
        }
        self.values.change(pairs);
        Ok(())
    }

    /// Writes what `CONFIG SET` has changed to the configuration file.
    ///
    /// # Errors
    /// There is no file, or it could not be written.
    pub fn rewrite(&self) -> Result<(), String> {
        self.values.rewrite()
    }

    /// Checks parameters, and returns them in the form in which they are stored.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(&self, pairs: &[(String, String)]) -> Result<Vec<(String, String)>, String> {
        let name = |n: usize| pairs[n].0.to_ascii_lowercase();
        if let Some(n) = (1..pairs.len()).find(|n| (0..*n).any(|before| name(before) == name(*n))) {
            let name = name(n);
            return Err(format!("{REFUSED}'{name}') - duplicate parameter"));
        }
        pairs.iter().map(|(name, value)| self.checked(name, value)).collect()
    }

    fn checked(&self, name: &str, value: &str) -> Result<(String, String), String> {
        let name = name.to_ascii_lowercase();
        let refuse = |why: &str| Err(format!("{REFUSED}'{name}') - {why}"));
        // `CONFIG GET` shows them, but they are not among the values.
        if matches!(name.as_str(), "replicaof" | "slaveof") {
            return refuse("can't set immutable config: use REPLICAOF");
        }
        let Some(old) = self.get(&name) else {
            return Err(format!("ERR Unknown option or number of arguments for CONFIG SET - '{name}'"));
        };
        if is_fixed(&name) {
            return if value == old { Ok((name, old)) } else { refuse("can't set immutable config") };
        }
        if let Some((_, only, why)) = PROMISES.iter().find(|promise| promise.0 == name) {
            let is_same = value == *only || bytes_of(value).is_some_and(|bytes| bytes.to_string() == *only);
            return if is_same { Ok((name, old)) } else { refuse(&format!("not supported: {why}")) };
        }
        let kept = match name.as_str() {
            "notify-keyspace-events" => match events_of(value.as_bytes()) {
                Some(events) => Ok(letters_of(events)),
                None => Err("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.".to_owned()),
            },
            "appendfsync" => match Fsync::named(value) {
                Some(fsync) => Ok(fsync.name().to_owned()),
                None => Err("argument must be one of the following: everysec, always, no".to_owned()),
            },
            "maxclients" => self.checked_clients(value),
            "maxmemory-clients" => self.connections.checked_memory(value),
            "track-accesses" => self.checked_accesses(value),
            "client-output-buffer-limit" => {
                self.output.parsed(value).map(OutputLimits::text).map_err(str::to_owned)
            }
            _ => Kind::of(&name).unwrap_or(Kind::Text).checked(value),
        };
        match kept {
            Ok(kept) => Ok((name, kept)),
            Err(why) => refuse(&why),
        }
    }

    /// Checks the size of the table of accesses. The table stays where it is once it exists.
    fn checked_accesses(&self, value: &str) -> Result<String, String> {
        let (kept, known) = (Kind::Bytes(0).checked(value)?, self.accesses.bytes());
        match kept.parse().unwrap_or(0) {
            0 => Ok(kept),
            n if !ACCESS_BYTES.contains(&n) => {
                let (least, most) = (ACCESS_BYTES.start(), ACCESS_BYTES.end());
                Err(format!("argument must be 0, or between {least} and {most} inclusive"))
            }
            n if known > 0 && Accesses::bytes_of(n) != known => {
                Err(format!("the table has {known} bytes until a restart: set it to that or to 0"))
            }
            _ => Ok(kept),
        }
    }

    fn checked_clients(&self, value: &str) -> Result<String, String> {
        match parse_int(value.as_bytes()) {
            Some(clients) if clients > 0 && clients as u64 > self.bounds.clients => Err(format!(
                "The operating system is not able to handle the specified number of clients, try with {}",
                self.bounds.clients
            )),
            Some(1..) => Ok(value.to_owned()),
            _ => Err("argument must be between 1 and 4294967295 inclusive".to_owned()),
        }
    }

    fn apply(&self, name: &str, value: &str) {
        let number = parse_int(value.as_bytes()).map_or(0, |n| n.max(0) as u64);
        match name {
            "notify-keyspace-events" => {
                self.events.store(events_of(value.as_bytes()).unwrap_or(0), Ordering::Relaxed);
            }
            "appendfsync" => {
                let fsync = Fsync::named(value).unwrap_or_default();
                self.fsync.store(fsync as u32, Ordering::Relaxed);
            }
            "slowlog-log-slower-than" => {
                self.latency.slow_micros.store(parse_int(value.as_bytes()).unwrap_or(-1), Ordering::Relaxed);
            }
            "busy-reply-threshold" | "lua-time-limit" => self.busy_ms.store(number, Ordering::Relaxed),
            "min-replicas-to-write" | "min-replicas-max-lag" | "write-quorum" | "write-quorum-timeout" => {
                self.safety.set(name, number);
            }
            "replica-sync-ms" => self.replica_sync_ms.store(number, Ordering::Relaxed),
            "client-output-buffer-limit" => {
                if let Ok(limits) = self.output.parsed(value) {
                    self.output.set(limits);
                }
            }
            "track-accesses" => self.accesses.set_bytes(number, clock::now_ms()),
            "lfu-log-factor" => self.accesses.set_log_factor(number),
            "lfu-decay-time" => self.accesses.set_decay_minutes(number),
            "latency-monitor-threshold" => self.latency.event_ms.store(number, Ordering::Relaxed),
            "latency-tracking" => self.latency.is_tracked.store(u32::from(value == "yes"), Ordering::Relaxed),
            "protected-mode" => self.protected.store(u32::from(value == "yes"), Ordering::Relaxed),
            _ => self.connections.set(name, value),
        }
    }
}

/// Returns the files of certificates. A replica may have them without encrypted connections of clients: then
/// its settings have them.
fn certificates(options: &Options) -> [(String, String); 3] {
    let tls = options.tls.as_ref();
    let files = [
        ("tls-ca-cert-file", tls.and_then(|tls| tls.ca.as_ref())),
        ("tls-cert-file", tls.map(|tls| &tls.cert)),
        ("tls-key-file", tls.map(|tls| &tls.key)),
    ];
    files.map(|(name, path)| (name.to_owned(), path.map_or(String::new(), |path| path.display().to_string())))
}

/// Returns the parameters of `CONFIG SET` with the types of their values.
pub fn parameters() -> impl Iterator<Item = (&'static str, Kind)> {
    let knobs = KNOBS.iter().map(|(name, kind, _)| (*name, *kind)).chain(OWN.iter().copied());
    knobs.chain(PROMISES.iter().map(|(name, ..)| (*name, Kind::Text)))
}

/// Returns whether a parameter or an option cannot be set while the server runs.
fn is_fixed(name: &str) -> bool {
    FIXED.contains(&name) || !parameters().any(|(known, _)| known == name)
}

/// Checks a value of a parameter without setting it.
///
/// # Errors
/// What is wrong.
pub fn check_parameter(name: &str, value: &str) -> Result<(), String> {
    let checked = Config::new(&Options::default()).check(&[(name.to_owned(), value.to_owned())]);
    checked
        .map(drop)
        .map_err(|error| error.split_once("') - ").map_or(error.clone(), |(_, why)| why.to_owned()))
}

/// Returns whether the name of a parameter matches one of the patterns.
pub fn is_meant(name: &str, patterns: &[&[u8]]) -> bool {
    patterns.iter().any(|pattern| crate::base::glob::matches(&pattern.to_ascii_lowercase(), name.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knobs_give_back_what_they_were_set_to() {
        let config = Config::new(&Options::default());
        let pair = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
        config.set(&pair("HASH-max-listpack-entries", "7")).unwrap();
        assert_eq!(config.get("hash-max-listpack-entries").as_deref(), Some("7"));
        config.set(&pair("repl-backlog-size", "100mb")).unwrap();
        assert_eq!(config.number("repl-backlog-size"), 100 << 20);
        config.set(&pair("notify-keyspace-events", "EKlx")).unwrap();
        assert!(config.events() != 0);
        assert_eq!(config.find(&[b"notify*"])[0].1, "lxKE");
        for (name, value) in
            [("nope", "1"), ("port", "1"), ("hz", "x"), ("appendonly", "maybe"), ("appendfsync", "x")]
        {
            assert!(config.set(&pair(name, value)).is_err(), "{name}");
        }
        for (name, value) in
            [("maxmemory", "100mb"), ("maxmemory-policy", "allkeys-lru"), ("replica-serve-stale-data", "no")]
        {
            assert!(config.set(&pair(name, value)).unwrap_err().contains("not supported"), "{name}");
        }
        for (name, value, bytes) in
            [("maxmemory-clients", "5%", Some(53_687_091)), ("maxmemory-clients", "0", None)]
        {
            config.set(&pair(name, value)).unwrap();
            assert_eq!((config.get(name).as_deref(), config.connections.memory()), (Some(value), bytes));
        }
        assert!(config.set(&pair("maxmemory-clients", "101%")).is_err());
        for (name, value) in [("maxmemory", "0mb"), ("maxmemory-policy", "noeviction")] {
            config.set(&pair(name, value)).unwrap();
        }
        config.set(&pair("min-slaves-to-write", "2")).unwrap();
        assert_eq!(config.get("min-replicas-to-write").as_deref(), Some("2"));
        assert_eq!(config.safety.replicas_min(), Some((2, 10_000)));
        config.set(&pair("min-replicas-max-lag", "0")).unwrap();
        assert_eq!(config.safety.replicas_min(), None, "a lag of 0 turns it off, as in Redis");
        let both = [pair("hz", "50"), pair("nope", "1")].concat();
        assert!(config.set(&both).is_err());
        assert_eq!(config.number("hz"), 10, "all or none");
        config.set(&pair("appendfsync", "always")).unwrap();
        assert_eq!(config.durability(), Durability::Sync);
    }

    #[test]
    fn connections_leave_the_engine_its_descriptors() {
        let bound = |descriptors, http: Option<&str>| {
            let http = http.map(str::to_owned);
            let bounds = Bounds::of(&Options { descriptors, http, ..Options::default() });
            (bounds.clients, bounds.http)
        };
        assert_eq!(bound(Some(220), None).0, 55);
        let (clients, http) = bound(Some(220), Some(":0"));
        assert_eq!((clients, http), (28, 27), "HTTP takes part of what clients have");
        assert_eq!(bound(None, Some(":0")), (u64::MAX, 64));
        assert_eq!(bound(Some(10_000), Some(":0")).1, 64);
    }
}
