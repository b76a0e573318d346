//! Nothing but tests: sled's own, on `esker-sled`, and a migration from sled.
