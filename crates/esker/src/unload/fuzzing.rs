//! Fuzzing entry point: reads arbitrary bytes as records of unload files.
//!
//! ```text
//!   bytes --> the first record of a file, or another record --> refused, or round-trips
//! ```

use std::path::Path;
use std::time::Duration;

use super::format::{Head, Record};
use crate::blob::Blobs;
use crate::engine::state::history::History;
use crate::engine::state::keyspace_options::{Counting, KeyspaceOptions};

/// Decodes the bytes as each kind of record.
pub fn unload_record(bytes: &[u8]) {
    if let Ok(head) = Head::decode(bytes, Path::new("file"), 0) {
        assert_eq!(Head::decode(&head.encode(), Path::new("file"), 0).expect("it was decoded"), head);
    }
    if let Ok(record) = Record::decode(bytes) {
        assert_eq!(Record::decode(&record.encode()), Ok(record));
    }
}

/// Returns one record of each kind.
pub fn unload_records() -> Vec<Vec<u8>> {
    let head = Head { id: 5, seqno: 300, keyspaces: vec![("users".to_owned(), 7), ("mails".to_owned(), 0)] };
    let options = KeyspaceOptions {
        blobs: Some(Blobs::From(200)),
        counting: Counting::Lazy,
        default_ttl: Some(Duration::from_secs(1)),
        history: History::For(Duration::from_secs(60)),
        merge_operator: Some("max".to_owned()),
        ..KeyspaceOptions::default()
    };
    let records = [
        Record::Keyspace(1, options),
        Record::Entries(vec![(b"a", 0, b"1"), (b"b", 300, b"")]),
        Record::KeyspaceEnd(2),
        Record::End(300),
    ];
    std::iter::once(head.encode()).chain(records.iter().map(Record::encode)).collect()
}
