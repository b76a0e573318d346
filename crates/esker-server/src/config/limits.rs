//! Limits of connections.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::config::options::Options;
use crate::resp::numbers::bytes_of;

/// `client-query-buffer-limit`, as in Redis.
pub(super) const QUERY_BYTES_MAX: u64 = 1 << 30;
/// `tcp-keepalive`, as in Redis.
pub(super) const KEEPALIVE_SECONDS: u64 = 300;

/// Limits of connections. Relaxed: they are independent, and each use reads them again.
pub struct ConnectionLimits {
    clients: AtomicU64,
    /// Connections of one address; 0: no limit.
    of_address: AtomicU64,
    idle_seconds: AtomicU64,
    query_bytes: AtomicU64,
    keepalive_seconds: AtomicU64,
    /// Bytes that all connections use; 0: only requests are limited.
    memory: AtomicU64,
    /// Bytes of the requests of all connections (`--memory`).
    requests_bytes: u64,
}

impl ConnectionLimits {
    pub(super) fn of(options: &Options, clients: u64) -> Self {
        ConnectionLimits {
            clients: clients.into(),
            of_address: 0.into(),
            idle_seconds: options.idle_seconds.into(),
            query_bytes: QUERY_BYTES_MAX.into(),
            keepalive_seconds: KEEPALIVE_SECONDS.into(),
            memory: 0.into(),
            requests_bytes: options.requests_bytes_max as u64,
        }
    }

    /// Sets a parameter, if it is one of these.
    pub(super) fn set(&self, name: &str, value: &str) {
        let field = match name {
            "maxclients" => &self.clients,
            "maxclients-per-address" => &self.of_address,
            "timeout" => &self.idle_seconds,
            "client-query-buffer-limit" => &self.query_bytes,
            "tcp-keepalive" => &self.keepalive_seconds,
            "maxmemory-clients" => &self.memory,
            _ => return,
        };
        field.store(self.share_of(value).unwrap_or(0), Ordering::Relaxed);
    }

    /// Parses a number of bytes, or a percentage of `--memory`.
    fn share_of(&self, value: &str) -> Option<u64> {
        match value.strip_suffix('%') {
            Some(percent) => {
                let percent = percent.parse::<u64>().ok().filter(|percent| *percent <= 100)?;
                Some((u128::from(self.requests_bytes) * u128::from(percent) / 100) as u64)
            }
            None => bytes_of(value),
        }
    }

    /// Returns a value of `maxmemory-clients` in the form in which it is stored.
    pub(super) fn checked_memory(&self, value: &str) -> Result<String, String> {
        match self.share_of(value) {
            Some(_) if value.ends_with('%') => Ok(value.to_owned()),
            Some(bytes) if i64::try_from(bytes).is_ok() => Ok(bytes.to_string()),
            _ => Err("argument must be a memory or percent value".to_owned()),
        }
    }

    /// Returns the maximum number of connections.
    pub fn clients(&self) -> usize {
        self.clients.load(Ordering::Relaxed) as usize
    }

    /// Returns the maximum number of connections from one address.
    pub fn of_address(&self) -> usize {
        match self.of_address.load(Ordering::Relaxed) {
            0 => usize::MAX,
            n => n as usize,
        }
    }

    /// Returns the seconds without a command after which a connection is closed; 0: never.
    pub fn idle_seconds(&self) -> u64 {
        self.idle_seconds.load(Ordering::Relaxed)
    }

    /// Returns the maximum bytes of a client's incomplete request, and of its commands that wait for `EXEC`.
    pub fn query_bytes(&self) -> usize {
        self.query_bytes.load(Ordering::Relaxed) as usize
    }

    /// Returns the seconds after which the system probes a silent client; 0: never.
    pub fn keepalive_seconds(&self) -> u64 {
        self.keepalive_seconds.load(Ordering::Relaxed)
    }

    /// Returns the maximum bytes of requests and output of all connections, if they are limited.
    pub fn memory(&self) -> Option<usize> {
        Some(self.memory.load(Ordering::Relaxed) as usize).filter(|bytes| *bytes > 0)
    }

    /// Returns the maximum bytes of requests of all connections.
    pub fn requests_bytes(&self) -> usize {
        self.memory().unwrap_or(usize::MAX).min(self.requests_bytes as usize)
    }
}
