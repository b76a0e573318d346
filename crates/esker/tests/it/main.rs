//! The engine's integration tests in one program, since linking takes seconds. A test that needs its own
//! process starts the program again (`own_process.rs`).

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/memory.rs"]
mod memory;
mod own_process;

mod anomalies;
mod background;
mod backup;
mod backup_history;
mod backup_store;
mod blobs;
mod check;
mod checkpoint;
mod close;
mod compact_range;
mod compatibility;
mod concurrency;
mod corruption;
mod counting;
mod damaged_blocks;
mod dump;
#[cfg(feature = "encryption")]
mod encryption;
mod events;
mod feed;
mod filters;
mod follower;
#[cfg(unix)]
mod foreign_files;
mod foreign_garbage;
mod fork;
mod group_commit;
mod health;
mod history;
mod ingest;
mod interface;
mod isolation;
mod keyspace_options;
mod kill_then_power_loss;
mod large_transactions;
mod limits;
mod locks;
mod memory_budget;
mod merge_expiry;
mod merge_operators;
mod moved_directory;
mod multi_get;
mod no_descriptors;
mod nonblocking;
mod oldest;
mod open_files;
mod openings;
mod own_walks;
mod parallel_compactions;
mod range_removals;
mod read_only;
mod readme;
mod refusals;
mod repair;
mod replay;
mod runs_of_one_commit;
mod sequences;
mod size;
mod space;
mod stats;
mod streams;
mod table_memory;
mod ttl;
#[cfg(all(feature = "json", feature = "msgpack"))]
mod typed;
mod unload;
mod walks;
mod watch;
#[cfg(not(feature = "encryption"))]
mod without_encryption;
mod working_directory;
