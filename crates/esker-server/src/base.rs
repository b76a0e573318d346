//! Used by all layers: time, texts, counters, digests.

pub mod accesses;
pub mod clock;
pub mod counter;
pub mod events;
pub mod glob;
pub mod sha1;

use std::time::Duration;

/// Maximum duration of a script. A script that runs longer fails (lua.2).
pub const SCRIPT_TIME_MAX: Duration = Duration::from_secs(5);
