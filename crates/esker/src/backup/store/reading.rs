//! Reads an object as a file, by ranges.
//!
//! Reads in order fetch longer and longer ranges ahead. Other reads fetch little more than they need.

use std::io;
use std::sync::Arc;

use esker_env::File;
use parking_lot::Mutex;

use super::BackupStore;

/// Bytes fetched by the first read, and the most that a later one fetches ahead.
const FETCH_MIN: u64 = 64 << 10;
const FETCH_MAX: u64 = 8 << 20;

/// An object that is read.
#[derive(Debug)]
pub(super) struct StoredObject {
    store: Arc<dyn BackupStore>,
    name: String,
    size: u64,
    ahead: Mutex<Ahead>,
}

/// The range fetched last.
#[derive(Debug)]
struct Ahead {
    at: u64,
    bytes: Vec<u8>,
    /// Bytes that the next read in order fetches.
    next: u64,
}

impl StoredObject {
    pub(super) fn new(store: Arc<dyn BackupStore>, name: String, size: u64) -> StoredObject {
        let ahead = Ahead { at: 0, bytes: Vec::new(), next: FETCH_MIN };
        StoredObject { store, name, size, ahead: Mutex::new(ahead) }
    }
}

impl File for StoredObject {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        if offset >= self.size || buf.is_empty() {
            return Ok(0);
        }
        let mut ahead = self.ahead.lock();
        let end = ahead.at + ahead.bytes.len() as u64;
        if !(ahead.at..end).contains(&offset) {
            let is_next = offset == end;
            let fetch = if is_next { ahead.next } else { FETCH_MIN };
            let until = (offset + fetch.max(buf.len() as u64)).min(self.size);
            ahead.bytes = self.store.read(&self.name, Some(offset..until))?;
            if ahead.bytes.is_empty() {
                return Ok(0);
            }
            (ahead.at, ahead.next) = (offset, (fetch * 4).min(FETCH_MAX));
        }
        let from = (offset - ahead.at) as usize;
        let len = buf.len().min(ahead.bytes.len() - from);
        buf[..len].copy_from_slice(&ahead.bytes[from..from + len]);
        Ok(len)
    }

    fn write_all_at(&self, _buf: &[u8], _offset: u64) -> io::Result<()> {
        Err(unsupported())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn start_writeback(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.size)
    }

    fn set_len(&self, _len: u64) -> io::Result<()> {
        Err(unsupported())
    }

    fn allocate(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Err(unsupported())
    }

    fn drop_cache(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }

    fn is_direct(&self) -> bool {
        false
    }
}

/// Returns the error for a change of an object.
pub(super) fn unsupported() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "a stored object cannot be changed")
}
