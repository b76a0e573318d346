//! `Tuning`: sizes and rates of a database that most programs leave alone.

use crate::engine::base::options::Settings;

/// Sizes and rates that the engine derives from the memory if they are not set: see
/// [`Builder::tuning`](crate::Builder::tuning). The database stores none of them: each holds for one opening.
#[derive(Clone, Debug)]
pub struct Tuning {
    pub(super) settings: Settings,
}

impl Tuning {
    /// Size in bytes at which a memtable is flushed, at most 16 GiB. Default: an eighth of the memory, at
    /// most 64 MiB. Up to three full memtables are in memory at a time, at the expense of the cache. Beyond a
    /// quarter of the memory they leave it little.
    pub fn memtable_bytes(mut self, bytes: usize) -> Self {
        self.settings.sizes.memtable_bytes = Some(bytes);
        self
    }
    /// Bytes of the writes of one large transaction or batch that stay in memory, within the budget. Further
    /// writes go to tables that are invisible until the commit. Default: a quarter of the memory.
    pub fn transaction_memory(mut self, bytes: u64) -> Self {
        self.settings.sizes.transaction_memory = Some(bytes);
        self
    }
    /// Maximum bytes of memtables that a killed process leaves to be replayed by the next opening. A larger
    /// memtable is flushed a second after its first commit, even while writes continue. So a slow writer
    /// leaves about this much; a fast one leaves what it wrote in a second, or while it filled a memtable.
    /// Default 4 MiB. A close leaves at most this much, 256 KiB, and 32 log files. Without threads
    /// ([`background`](crate::Builder::background)) only a close honours this.
    pub fn replay_bytes(mut self, bytes: u64) -> Self {
        self.settings.sizes.replay_bytes = bytes;
        self
    }
    /// Limits writers to this many bytes of keys and values a second, all together and evenly; at least 1
    /// KiB. For constant latencies, set less than compactions keep up with ([`Stats`](crate::Stats) reports
    /// stalls). Default: no limit.
    pub fn write_rate(mut self, bytes_per_second: u64) -> Self {
        self.settings.allowances.write_rate = Some(bytes_per_second);
        self
    }
    /// Limits all compactions together to reading this many bytes a second; at least 1 MiB. Flushes are not
    /// limited. When compactions fall behind, writers are slowed down to their rate. Default: no limit.
    pub fn compaction_rate(mut self, bytes_per_second: u64) -> Self {
        self.settings.allowances.compaction_rate = Some(bytes_per_second);
        self
    }
    /// Limits all compactions together to this percentage of one processor's time, 1 to 100. Default: no
    /// limit.
    pub fn compaction_percent(mut self, percent: u64) -> Self {
        self.settings.allowances.compaction_percent = Some(percent);
        self
    }
    /// Number of compactions that may run at the same time, 1 to 64, each in a thread. They share the rate
    /// and the percentage. Compactions of overlapping keys in the same levels wait for each other. Default:
    /// the number of processors less one, from 1 to 4. Without threads
    /// ([`background`](crate::Builder::background)) there is one at a time.
    pub fn compactions(mut self, number: usize) -> Self {
        self.settings.allowances.compactions = Some(number);
        self
    }
    /// Maximum disk space for each live byte, from 1.1 to 100. Default 1.5. Beyond it blob files are
    /// garbage-collected, and runs that may hide garbage are compacted. The database takes more for a while
    /// when writes are ahead of compactions, and for as long as snapshots see what was overwritten.
    /// [`Stats::space_amplification`](crate::Stats::space_amplification) is the current value.
    pub fn space_amplification_max(mut self, ratio: f64) -> Self {
        self.settings.blobs.amplification_percent_max = (ratio * 100.0) as u64;
        self
    }
    /// Size of a table's blocks, in bytes. Default 8 KiB.
    pub fn block_bytes(mut self, bytes: usize) -> Self {
        self.settings.sizes.block_bytes = bytes;
        self
    }
    /// Size in bytes at which compactions begin a new table, at most 1 TiB. Default 64 MiB.
    pub fn table_bytes(mut self, bytes: u64) -> Self {
        self.settings.sizes.table_bytes = bytes;
        self
    }
    /// Lets readers of the feed hold commits that [`feed_retention`](crate::Builder::feed_retention) would
    /// release, while the kept log has at most `bytes`. The database holds everything until
    /// [`Db::hold_feed_after`](crate::Db::hold_feed_after) sets the first commit to hold. So an opening
    /// releases nothing that an absent reader needs. Default 0: nothing is held.
    pub fn feed_hold(mut self, bytes: u64) -> Self {
        self.settings.feed.hold = bytes;
        self
    }
    /// Whether small commits that do not wait for the disk are stored through a memory map of the log's file
    /// instead of a system call each. That saves about a microsecond for each commit (example `costs`).
    /// Default true. Set it to false for file systems that may shut down under a process that has to survive:
    /// in a rare case the system then ends the process by a signal, where a call would have failed.
    pub fn map_log(mut self, yes: bool) -> Self {
        self.settings.log.map = yes;
        self
    }
}
