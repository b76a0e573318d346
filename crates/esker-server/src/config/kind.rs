//! The type of each parameter's values.

use self::Kind::{Bytes, Int, Switch, Text, Word};
use crate::resp::numbers::bytes_of;
use crate::resp::numbers::parse_int;

/// The least `client-query-buffer-limit`.
const QUERY_BYTES_MAX_MIN: u64 = 1 << 20;
const SECONDS_MAX: i64 = i32::MAX as i64;
/// Seconds, milliseconds and other small numbers.
const SECONDS: Kind = Int(0, SECONDS_MAX);
const COUNT: Kind = Int(0, i64::MAX);
const SIGNED: Kind = Int(i32::MIN as i64, i32::MAX as i64);

/// Parameters with their types and default values. Most have no meaning here.
#[rustfmt::skip]
pub const KNOBS: &[(&str, Kind, &str)] = &[
    ("acllog-max-len", COUNT, "128"),
    ("activedefrag", Switch, "no"),
    ("active-expire-effort", Int(1, 10), "1"),
    ("activerehashing", Switch, "yes"),
    ("appendonly", Switch, "yes"),
    ("aof-use-rdb-preamble", Switch, "yes"),
    ("auto-aof-rewrite-percentage", COUNT, "100"),
    ("auto-aof-rewrite-min-size", Bytes(0), "67108864"),
    ("close-on-oom", Switch, "no"),
    ("cluster-enabled", Switch, "no"),
    ("daemonize", Switch, "no"),
    ("dbfilename", Text, "dump.rdb"),
    ("dynamic-hz", Switch, "yes"),
    ("hash-max-listpack-entries", COUNT, "128"),
    ("hash-max-listpack-value", Bytes(0), "64"),
    ("hash-max-ziplist-entries", COUNT, "128"),
    ("hash-max-ziplist-value", Bytes(0), "64"),
    ("hll-sparse-max-bytes", Bytes(0), "3000"),
    ("hz", SECONDS, "10"),
    ("import-mode", Switch, "no"),
    ("io-threads", Int(1, 128), "1"),
    ("latency-monitor-threshold", COUNT, "0"),
    ("latency-tracking", Switch, "yes"),
    ("latency-tracking-info-percentiles", Text, "50 99 99.9"),
    ("lazyfree-lazy-eviction", Switch, "no"),
    ("lazyfree-lazy-expire", Switch, "no"),
    ("lazyfree-lazy-server-del", Switch, "no"),
    ("lazyfree-lazy-user-del", Switch, "no"),
    ("lazyfree-lazy-user-flush", Switch, "no"),
    ("lfu-decay-time", COUNT, "1"),
    ("lfu-log-factor", COUNT, "10"),
    ("list-compress-depth", COUNT, "0"),
    ("list-max-listpack-size", SIGNED, "-2"),
    ("list-max-ziplist-size", SIGNED, "-2"),
    ("loglevel", Word(&["debug", "verbose", "notice", "warning", "nothing"]), "notice"),
    ("lua-time-limit", COUNT, "5000"),
    ("busy-reply-threshold", COUNT, "5000"),
    ("min-replicas-max-lag", SECONDS, "10"),
    ("min-replicas-to-write", SECONDS, "0"),
    ("min-slaves-max-lag", SECONDS, "10"),
    ("min-slaves-to-write", SECONDS, "0"),
    ("maxmemory-samples", Int(1, 64), "5"),
    ("no-appendfsync-on-rewrite", Switch, "no"),
    ("oom-score-adj", Word(&["no", "yes", "relative", "absolute"]), "no"),
    ("rdb-key-save-delay", SIGNED, "0"),
    ("rdbcompression", Switch, "yes"),
    ("rdbchecksum", Switch, "yes"),
    ("repl-backlog-size", Bytes(0), "1048576"),
    ("repl-diskless-sync", Switch, "yes"),
    ("repl-diskless-sync-delay", SECONDS, "5"),
    ("repl-ping-replica-period", Int(1, SECONDS_MAX), "10"),
    ("repl-timeout", Int(1, SECONDS_MAX), "60"),
    ("replica-announced", Switch, "yes"),
    ("save", Text, ""),
    ("shutdown-on-sigint", Text, "default"),
    ("shutdown-on-sigterm", Text, "default"),
    ("set-max-intset-entries", COUNT, "512"),
    ("set-max-listpack-entries", COUNT, "128"),
    ("set-max-listpack-value", Bytes(0), "64"),
    ("slowlog-log-slower-than", Int(-1, i64::MAX), "10000"),
    ("slowlog-max-len", COUNT, "128"),
    ("stream-node-max-bytes", Bytes(0), "4096"),
    ("stream-node-max-entries", COUNT, "100"),
    ("track-accesses", Bytes(0), "0"),
    ("tracking-table-max-keys", COUNT, "1000000"),
    ("write-quorum", SECONDS, "0"),
    ("write-quorum-timeout", Int(1, SECONDS_MAX), "1000"),
    ("zset-max-listpack-entries", COUNT, "128"),
    ("zset-max-listpack-value", Bytes(0), "64"),
    ("zset-max-ziplist-entries", COUNT, "128"),
    ("zset-max-ziplist-value", Bytes(0), "64"),
];

/// Parameters whose first value comes from the server's options, with their types. `config.rs` checks the
/// others.
pub const OWN: &[(&str, Kind)] = &[
    ("aclfile", Text),
    ("appendfsync", Word(&["always", "everysec", "no", "never"])),
    ("bind", Text),
    ("client-output-buffer-limit", Text),
    ("client-query-buffer-limit", Bytes(QUERY_BYTES_MAX_MIN)),
    ("databases", COUNT),
    ("dir", Text),
    ("masterauth", Text),
    ("masteruser", Text),
    ("maxclients", COUNT),
    ("maxclients-per-address", SECONDS),
    ("maxmemory-clients", Text),
    ("notify-keyspace-events", Text),
    ("port", COUNT),
    ("protected-mode", Switch),
    ("replica-sync-ms", SECONDS),
    ("requirepass", Text),
    ("tcp-keepalive", SECONDS),
    ("timeout", SECONDS),
    ("tls-ca-cert-file", Text),
    ("tls-cert-file", Text),
    ("tls-key-file", Text),
    ("transaction-timeout", SECONDS),
    ("unixsocket", Text),
];

/// The type of a parameter's values. The previous value does not matter.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Any text.
    Text,
    /// `yes` or `no`.
    Switch,
    /// A whole number in this range.
    Int(i64, i64),
    /// A number of bytes with or without a unit, at least this many.
    Bytes(u64),
    /// One of these words.
    Word(&'static [&'static str]),
}

impl Kind {
    /// Returns the value in the form in which it is stored.
    ///
    /// # Errors
    /// What the value must be.
    pub fn checked(self, value: &str) -> Result<String, String> {
        let between =
            |least: i64, most: i64| Err(format!("argument must be between {least} and {most} inclusive"));
        match self {
            Text => {}
            Switch if matches!(value, "yes" | "no") => {}
            Switch => return Err("argument must be 'yes' or 'no'".to_owned()),
            Int(least, most) => match parse_int(value.as_bytes()) {
                Some(n) if (least..=most).contains(&n) => {}
                Some(_) => return between(least, most),
                None => return Err("argument couldn't be parsed into an integer".to_owned()),
            },
            Bytes(least) => match bytes_of(value) {
                Some(n) if (least..=i64::MAX as u64).contains(&n) => return Ok(n.to_string()),
                Some(_) => return between(least as i64, i64::MAX),
                None => return Err("argument must be a memory value".to_owned()),
            },
            Word(words) if words.contains(&value) => {}
            Word(words) => {
                return Err(format!("argument must be one of the following: {}", words.join(", ")));
            }
        }
        Ok(value.to_owned())
    }

    /// Returns the type of a parameter, if this table has it.
    pub fn of(name: &str) -> Option<Kind> {
        let knob = KNOBS.iter().find(|knob| knob.0 == name).map(|knob| knob.1);
        knob.or_else(|| OWN.iter().find(|own| own.0 == name).map(|own| own.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_checked_by_the_type_of_their_parameter() {
        for (name, kind, first) in KNOBS {
            assert_eq!(kind.checked(first).as_deref(), Ok(*first), "{name}");
            assert!(Kind::of(name).is_some());
        }
        for (kind, right, wrong) in [
            (Text, &["", "yes", "7"][..], &[][..]),
            (Switch, &["yes", "no"], &["", "1", "Yes"]),
            (Int(-1, 9), &["-1", "0", "9"], &["", "-2", "10", "x", "yes", "1.5"]),
            (Bytes(1024), &["1024"], &["1023", "-1", "x", "1tb", "18446744073709551615"]),
            (Word(&["a", "b"]), &["a", "b"], &["", "c", "a b"]),
        ] {
            right.iter().for_each(|value| assert_eq!(kind.checked(value).as_deref(), Ok(*value)));
            wrong.iter().for_each(|value| assert!(kind.checked(value).is_err(), "{kind:?} {value}"));
        }
        assert_eq!(Bytes(0).checked("100mb").as_deref(), Ok("104857600"));
    }
}
