//! Flags of commands: what a command may do, and where it runs.

/// Changes data.
pub const WRITE: u32 = 1;
/// Reads data.
pub const READ: u32 = 1 << 1;
/// Takes about the same time, however much is stored.
pub const FAST: u32 = 1 << 2;
/// For operators.
pub const ADMIN: u32 = 1 << 3;
/// Uses channels.
pub const PUBSUB: u32 = 1 << 4;
/// Not allowed in scripts.
pub const NO_SCRIPT: u32 = 1 << 5;
/// May wait for data.
pub const BLOCKING: u32 = 1 << 6;
/// Allowed before authentication.
pub const NO_AUTH: u32 = 1 << 7;
/// Not allowed between `MULTI` and `EXEC`.
pub const NO_MULTI: u32 = 1 << 8;
/// Runs immediately between `MULTI` and `EXEC`, instead of being queued.
pub const ENDS_MULTI: u32 = 1 << 9;
/// Refused when memory is short.
pub const DENY_OOM: u32 = 1 << 10;
/// Runs in the sequencer even if it does not write.
pub const SEQUENCED: u32 = 1 << 11;
/// Reads only the main record of one key, its first argument.
pub const ONE: u32 = 1 << 12;
/// Allowed for subscribed clients of protocol version 2.
pub const WHILE_SUBSCRIBED: u32 = 1 << 13;
/// May do harm.
pub const DANGEROUS: u32 = 1 << 14;
/// Waits for other servers, except inside `MULTI`.
pub const WAITS: u32 = 1 << 15;
/// Runs in the transaction that its connection holds, like all commands of rows.
pub const TAKES_PART: u32 = 1 << 16;
/// Begins a transaction that its connection holds.
pub const BEGINS: u32 = 1 << 17;
/// Commits the transaction that its connection holds.
pub const COMMITS: u32 = 1 << 18;
/// Runs the commands queued since `MULTI`.
pub const RUNS_QUEUE: u32 = 1 << 19;
/// Must be the first command of its commit.
pub const FIRST_OF_COMMIT: u32 = 1 << 20;
/// Allowed while a script runs for long.
pub const WHILE_BUSY: u32 = 1 << 21;
/// Held by a pause of writes, although it is not marked as a write.
pub const PAUSED: u32 = 1 << 22;
/// Waits for a lock.
pub const LOCKS: u32 = 1 << 23;
/// Fails between `MULTI` and `EXEC` without aborting the transaction.
pub const BEFORE_MULTI: u32 = 1 << 24;
/// Has keys at positions that `COMMAND INFO` cannot express.
pub const MOVABLE_KEYS: u32 = 1 << 25;
/// Handles arguments that are not among its subcommands.
pub const OPEN: u32 = 1 << 26;
/// Has subcommands that users' rights do not distinguish.
pub const ONE_RIGHT: u32 = 1 << 27;
/// Its look-ups of keys do not count as accesses.
pub const NO_ACCESS: u32 = 1 << 28;

/// Flags that `COMMAND INFO` shows, with their names.
pub const NAMES: [(u32, &str); 10] = [
    (WRITE, "write"),
    (READ, "readonly"),
    (DENY_OOM, "denyoom"),
    (ADMIN, "admin"),
    (PUBSUB, "pubsub"),
    (NO_SCRIPT, "noscript"),
    (BLOCKING | WAITS, "blocking"),
    (FAST, "fast"),
    (NO_AUTH, "no_auth"),
    (NO_MULTI, "no_multi"),
];
