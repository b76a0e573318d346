//! What a command may do, and where it runs.

/// It changes data.
pub const WRITE: u32 = 1;
/// It reads data.
pub const READ: u32 = 1 << 1;
/// It takes about the same time whatever is stored.
pub const FAST: u32 = 1 << 2;
/// For operators.
pub const ADMIN: u32 = 1 << 3;
/// About channels.
pub const PUBSUB: u32 = 1 << 4;
/// Not from scripts.
pub const NO_SCRIPT: u32 = 1 << 5;
/// It may wait.
pub const BLOCKING: u32 = 1 << 6;
/// Also for clients that have not logged in.
pub const NO_AUTH: u32 = 1 << 7;
/// Not between `MULTI` and `EXEC`.
pub const NO_MULTI: u32 = 1 << 8;
/// Runs at once between `MULTI` and `EXEC`.
pub const ENDS_MULTI: u32 = 1 << 9;
/// It needs memory.
pub const DENY_OOM: u32 = 1 << 10;
/// It runs in the sequencer, although it may write nothing.
pub const SEQUENCED: u32 = 1 << 11;
/// It reads nothing but the main record of one key, its first word.
pub const ONE: u32 = 1 << 12;
/// Also for clients of version 2 that are subscribed to something.
pub const WHILE_SUBSCRIBED: u32 = 1 << 13;
/// It may do harm.
pub const DANGEROUS: u32 = 1 << 14;
/// It waits for other servers, unless inside of `MULTI`.
pub const WAITS: u32 = 1 << 15;
/// It takes part in the transaction that its connection holds, as all commands of rows do.
pub const TAKES_PART: u32 = 1 << 16;
/// It begins a transaction that its connection holds.
pub const BEGINS: u32 = 1 << 17;
/// It commits the transaction that its connection holds.
pub const COMMITS: u32 = 1 << 18;
/// It runs the commands that were queued since `MULTI`.
pub const RUNS_QUEUE: u32 = 1 << 19;
/// It comes first in its commit.
pub const FIRST_OF_COMMIT: u32 = 1 << 20;
/// Also while a script takes long.
pub const WHILE_BUSY: u32 = 1 << 21;
/// It is held by a pause of writes, although it is not marked as a write.
pub const PAUSED: u32 = 1 << 22;
/// It waits for a lock.
pub const LOCKS: u32 = 1 << 23;
/// An error between `MULTI` and `EXEC`, after which the transaction goes on.
pub const BEFORE_MULTI: u32 = 1 << 24;
/// Its keys stand where `COMMAND INFO` cannot say.
pub const MOVABLE_KEYS: u32 = 1 << 25;
/// It answers itself for words that are none of its subcommands.
pub const OPEN: u32 = 1 << 26;
/// Its subcommands are no commands for users' rights.
pub const ONE_RIGHT: u32 = 1 << 27;

/// The flags that `COMMAND INFO` shows, with their names.
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
