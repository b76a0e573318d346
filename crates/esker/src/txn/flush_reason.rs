//! Decides when a memtable is flushed. Pure policy: no I/O, no locks, no clock.
//!
//! ```text
//!   facts about the active memtable --+
//!   Moment: the caller and its facts --+--flush_reason--> seal and flush it for this reason, or leave it
//! ```
//!
//! Flushes that other work needs are not decided here: `Db::flush`, a large transaction over older versions
//! of its keys, and blob files that must settle.

use std::time::Duration;

/// The log of a memtable may become this many times as large as a full memtable. The log is the smaller one
/// if no commit overwrites its own writes.
const LOG_FACTOR: u64 = 4;
/// Age at which a memtable is flushed.
const OLD_AFTER: Duration = Duration::from_secs(1);
/// Bytes that a flush while idle has to free; less with small memtables.
const FREED_MIN: u64 = 1 << 20;
/// A memtable of fewer bytes is as fast to read as tables. With small memtables the bound is lower.
const LARGE_MIN: u64 = 1 << 20;
/// While idle, the memtable is not flushed if the tables are more than this many times as large.
const TABLES_MAX: u64 = 4;
/// Minimum time since the last commit.
const QUIET: Duration = Duration::from_secs(1);
/// Maximum bytes that a close leaves to replay, whatever a kill may leave: there is time for a flush.
const CLOSED_BYTES: u64 = 256 << 10;
/// If the log has more segments than this besides the active one, it is flushed, however little is in it.
const SEGMENTS_MAX: u64 = 32;

/// Why a memtable is flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushReason {
    /// The memtable, or its part of the log, has reached its maximum size.
    Full,
    /// A process killed now would leave much to replay.
    Old,
    /// Readers have lost as much time to the memtable as one run costs.
    ReadersPaid,
    /// While idle: its removals free more than the flush writes.
    FreesSpace,
    /// While idle: it is a large part of the database, and tables are faster to read.
    Large,
    /// The next opening would replay too much, or too many segments.
    LongReplay,
}

/// Facts about the active memtable.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemtableFacts {
    /// Bytes of memory in use.
    pub bytes: u64,
    /// Bytes of keys and values.
    pub content_bytes: u64,
    /// Whether it contains nothing. The memory in use does not show that for a memtable of a few bytes.
    pub is_empty: bool,
    /// Size at which a memtable is full.
    pub bytes_max: u64,
}

/// The caller, and what it knows besides.
pub enum Moment<'a> {
    /// A commit, or the flush thread in its place. `logged_bytes`: the memtable's part of the log.
    Commit { logged_bytes: u64 },
    /// The flush thread, at each tick. `is_behind`: a sealed memtable waits, or compaction slows writers
    /// down.
    Tick { age: Duration, is_behind: bool, replay_bytes: u64 },
    /// The compaction thread, in an idle database without sealed memtables.
    Idle {
        /// Time since the last commit.
        idle_for: Duration,
        /// Bytes of all tables.
        table_bytes: u64,
        /// Time that readers lost because of memtable and tables, and the cost of compacting both into one
        /// run, if there is one run of tables.
        lost_ns: u64,
        one_run_ns: Option<u128>,
        /// Returns the bytes of tables that a flush frees. Called last, because it reads the
        /// memtable.
        freed_bytes: &'a dyn Fn() -> u64,
    },
    /// An opened database. `segments`: the number that the next opening would read.
    Open { segments: u64 },
    /// A database that is closing. `unflushed_bytes`: of all its memtables.
    Close { segments: u64, unflushed_bytes: u64, replay_bytes: u64 },
}

/// Returns why the active memtable is flushed, or `None` if it is not.
pub fn flush_reason(memtable: MemtableFacts, moment: Moment<'_>) -> Option<FlushReason> {
    let MemtableFacts { bytes, content_bytes, is_empty, bytes_max } = memtable;
    match moment {
        Moment::Open { segments } => (segments > SEGMENTS_MAX).then_some(FlushReason::LongReplay),
        Moment::Close { segments, unflushed_bytes, replay_bytes } => {
            let is_long = unflushed_bytes > replay_bytes.min(CLOSED_BYTES) || segments > SEGMENTS_MAX;
            is_long.then_some(FlushReason::LongReplay)
        }
        _ if is_empty => None,
        Moment::Commit { logged_bytes } => {
            (bytes >= bytes_max || logged_bytes / LOG_FACTOR >= bytes_max).then_some(FlushReason::Full)
        }
        Moment::Tick { age, is_behind, replay_bytes } => {
            (age >= OLD_AFTER && !is_behind && bytes > replay_bytes).then_some(FlushReason::Old)
        }
        Moment::Idle { idle_for, table_bytes, lost_ns, one_run_ns, freed_bytes } => {
            let freed_min = FREED_MIN.min(bytes_max / 4).max(content_bytes);
            let large_min = LARGE_MIN.min(bytes_max / 4);
            if one_run_ns.is_some_and(|cost| u128::from(lost_ns) >= cost) {
                Some(FlushReason::ReadersPaid)
            } else if freed_bytes() >= freed_min {
                Some(FlushReason::FreesSpace)
            } else if idle_for >= QUIET
                && content_bytes >= large_min
                && table_bytes / TABLES_MAX <= content_bytes
            {
                Some(FlushReason::Large)
            } else {
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `commit used=64 max=64 log=1`: the moment, then facts. Bytes are in MiB, times in seconds.
    fn reason(text: &str) -> String {
        let mut words = text.split_whitespace();
        let moment = words.next().unwrap();
        let facts: Vec<(&str, f64)> = words
            .map(|word| word.split_once('=').unwrap_or((word, "1")))
            .map(|(name, value)| (name, value.parse().unwrap()))
            .collect();
        let fact = |name| facts.iter().find(|fact| fact.0 == name).map(|fact| fact.1);
        let mib = |name| (fact(name).unwrap_or(0.0) * f64::from(1 << 20)) as u64;
        let time = |name| Duration::from_secs_f64(fact(name).unwrap_or(0.0));
        let bytes = mib("used");
        let memtable =
            MemtableFacts { bytes, content_bytes: bytes, is_empty: bytes == 0, bytes_max: mib("max") };
        let (segments, replay_bytes) = (fact("segments").unwrap_or(0.0) as u64, mib("replay"));
        let freed_bytes = || mib("freed");
        let moment = match moment {
            "commit" => Moment::Commit { logged_bytes: mib("log") },
            "tick" => Moment::Tick { age: time("age"), is_behind: fact("behind").is_some(), replay_bytes },
            "idle" => Moment::Idle {
                idle_for: time("for"),
                table_bytes: mib("tables"),
                lost_ns: time("lost").as_nanos() as u64,
                one_run_ns: fact("cost").map(|_| time("cost").as_nanos()),
                freed_bytes: &freed_bytes,
            },
            "open" => Moment::Open { segments },
            _ => Moment::Close { segments, unflushed_bytes: bytes, replay_bytes },
        };
        flush_reason(memtable, moment).map_or("no".to_owned(), |reason| format!("{reason:?}"))
    }

    #[test]
    fn reasons_to_flush_a_memtable() {
        let table = "
            commit max=64 log=1                                 -> no
            commit used=63 max=64 log=1                         -> no
            commit used=64 max=64                               -> Full
            commit used=1 max=64 log=255                        -> no
            commit used=1 max=64 log=256                        -> Full

            tick age=9 max=64                                   -> no
            tick used=17 age=0.9 replay=16 max=64               -> no
            tick used=17 age=1 replay=16 max=64                 -> Old
            tick used=16 age=9 replay=16 max=64                 -> no
            tick used=17 age=9 replay=16 max=64 behind          -> no

            idle max=64 lost=9 cost=1 freed=9                   -> no
            idle used=1 max=64 lost=1 cost=1 freed=9            -> ReadersPaid
            idle used=1 max=64 lost=1                           -> no
            idle used=1 max=64 lost=0.9 cost=1 freed=1          -> FreesSpace
            idle used=0.1 max=64 freed=0.9                      -> no
            idle used=0.1 max=64 freed=1                        -> FreesSpace
            idle used=0.1 max=2 freed=0.5                       -> FreesSpace
            idle used=2 max=64 freed=1.9                        -> no
            idle used=1 max=64 for=0.9                          -> no
            idle used=1 max=64 for=1                            -> Large
            idle used=0.9 max=64 for=1                          -> no
            idle used=0.5 max=2 for=1                           -> Large
            idle used=1 max=64 for=1 tables=4                   -> Large
            idle used=1 max=64 for=1 tables=4.1                 -> no
            idle used=60 max=64 for=1 tables=200                -> Large

            open used=1 max=64 segments=32                      -> no
            open used=1 max=64 segments=33                      -> LongReplay
            close used=0.25 max=64 replay=16 segments=32        -> no
            close used=0.25 max=64 replay=16 segments=33        -> LongReplay
            close used=0.26 max=64 replay=16                    -> LongReplay
            close used=0.2 max=64 replay=0.1                    -> LongReplay
        ";
        for line in table.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (facts, expected) = line.split_once("->").unwrap();
            assert_eq!(reason(facts), expected.trim(), "{line}");
        }
    }
}
