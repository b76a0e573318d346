//! openraft's test suite.

use openraft::StorageError;
use openraft::testing::{StoreBuilder, Suite};
use tempfile::TempDir;

use crate::{Log, State, Types, stores};

struct OnDisk;

impl StoreBuilder<Types, Log, State, TempDir> for OnDisk {
    async fn build(&self) -> Result<(TempDir, Log, State), StorageError<u64>> {
        let dir = tempfile::tempdir().unwrap();
        let db = esker::Db::builder().memory(16 << 20).open(dir.path()).unwrap();
        let (log, state) = stores(&db);
        Ok((dir, log, state))
    }
}

#[test]
fn openraft_suite() {
    Suite::test_all(OnDisk).unwrap();
}
