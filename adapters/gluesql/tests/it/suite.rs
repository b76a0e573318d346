//! GlueSQL's test suite. Each test has a database on the disk of its own.

use esker_gluesql::EskerStorage;
use gluesql_core::prelude::Glue;
use gluesql_test_suite::*;
use tempfile::TempDir;

struct OnDisk {
    glue: Glue<EskerStorage>,
    _dir: TempDir,
}

impl Tester<EskerStorage> for OnDisk {
    fn new(_: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let db = esker::Db::builder().memory(16 << 20).open(dir.path()).unwrap();
        OnDisk { glue: Glue::new(EskerStorage::open(&db, "sql").unwrap()), _dir: dir }
    }

    fn get_glue(&mut self) -> &mut Glue<EskerStorage> {
        &mut self.glue
    }
}

generate_store_tests!(test, OnDisk);
generate_index_tests!(test, OnDisk);
generate_transaction_tests!(test, OnDisk);
generate_alter_table_tests!(test, OnDisk);
generate_alter_table_index_tests!(test, OnDisk);
generate_transaction_alter_table_tests!(test, OnDisk);
generate_transaction_index_tests!(test, OnDisk);
generate_metadata_table_tests!(test, OnDisk);
generate_metadata_index_tests!(test, OnDisk);
