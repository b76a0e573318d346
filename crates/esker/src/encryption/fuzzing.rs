//! Fuzzing entry point: reads arbitrary bytes as `KEYS`, as the keys of a file, and as a key header.
//!
//! ```text
//!   bytes --unchanged, and with a valid checksum--> key_file::decode --> refused, or round-trips
//! ```

use std::path::Path;
use std::sync::Arc;

use esker_env::{Env, MemFs};

use super::cipher::KeyHeader;
use super::key_file::{WrappedKey, decode, encode};
use super::{MasterKeys, with_keys, with_own_keys};
use crate::encoding::checksum::crc32c;

/// Bytes before the keys.
const START_BYTES: usize = 12;

/// Reads the bytes as keys.
pub fn key_file(bytes: &[u8]) {
    read(bytes);
    let mut bytes = bytes.to_vec();
    let start = encode(&[]);
    if let Some(end) = bytes.len().checked_sub(4).filter(|end| *end >= START_BYTES) {
        bytes[..START_BYTES].copy_from_slice(&start[..START_BYTES]);
        let crc = crc32c(&bytes[..end]);
        bytes[end..].copy_from_slice(&crc.to_le_bytes());
        read(&bytes);
    }
}

fn read(bytes: &[u8]) {
    if let Ok(keys) = decode(bytes, Path::new("KEYS")) {
        assert!(!keys.is_empty());
        assert_eq!(encode(&keys), bytes);
    }
    let _ = KeyHeader::decode(bytes);
    let master = MasterKeys::new("m", &[1; 32]).expect("the id is short");
    let env = with_keys(&Env::simulated(Arc::new(MemFs::new()), 1), Arc::new(master));
    let framed = [&(bytes.len() as u32).to_le_bytes()[..], bytes].concat();
    for own in [bytes, &framed] {
        assert!(with_own_keys(&env, (Path::new("f"), 84), own).is_err(), "no key was wrapped by this one");
    }
}

/// Returns files of keys.
pub fn key_files() -> Vec<Vec<u8>> {
    let key = |id: u64, master: &str, bytes: usize| WrappedKey {
        id,
        master: master.to_owned(),
        wrapped: vec![id as u8; bytes],
    };
    vec![encode(&[key(1, "m", 60)]), encode(&[key(7, "2026", 60), key(8, "old", 300), key(9, "", 0)])]
}
