//! An open file with fault injection.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{OpKind, Partial, Shared, answer, fault};
use crate::{AlignedBuf, File};

/// A file of the inner file system.
#[derive(Debug)]
pub(super) struct FaultFile {
    shared: Arc<Shared>,
    /// Its current name.
    path: Arc<Mutex<PathBuf>>,
    inner: Arc<dyn File>,
}

impl FaultFile {
    pub(super) fn over(inner: Arc<dyn File>, shared: &Arc<Shared>, path: Arc<Mutex<PathBuf>>) -> FaultFile {
        FaultFile { shared: shared.clone(), path, inner }
    }

    /// Returns a copy, so that a slow call does not block renames.
    fn name(&self) -> PathBuf {
        self.path.lock().clone()
    }

    fn check(&self, kind: OpKind) -> io::Result<Option<Partial>> {
        self.shared.check(kind, &[&self.name()])
    }

    fn check_at(&self, kind: OpKind, at: u64, len: usize) -> io::Result<Option<Partial>> {
        self.shared.check_bytes(kind, &[&self.name()], &(at..at.saturating_add(len as u64)))
    }

    fn answer(&self, partial: Option<Partial>, kind: OpKind) -> io::Result<()> {
        answer((), partial, kind, &[&self.name()])
    }

    fn fault(&self, what: &str, kind: OpKind) -> io::Error {
        fault(io::ErrorKind::Other, what, kind, &[&self.name()])
    }
}

impl File for FaultFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let partial = self.check_at(OpKind::Read, offset, buf.len())?;
        let len = match partial {
            Some(Partial::ShortRead { keep }) => {
                let unit = if self.is_direct() { AlignedBuf::ALIGN } else { 1 };
                (keep / unit * unit).max(unit).min(buf.len())
            }
            _ => buf.len(),
        };
        let n = self.inner.read_at(&mut buf[..len], offset)?;
        self.shared.plan.lock().read_bytes += n as u64;
        if let Some(Partial::CorruptRead { xor, at }) = partial
            && n > 0
        {
            buf[at % n] ^= xor;
        }
        Ok(n)
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let partial = self.check_at(OpKind::Write, offset, buf.len())?;
        let Some(Partial::ShortWrite { keep }) = partial else {
            self.inner.write_all_at(buf, offset)?;
            return self.answer(partial, OpKind::Write);
        };
        let unit = if self.is_direct() { AlignedBuf::ALIGN } else { 1 };
        self.inner.write_all_at(&buf[..keep.min(buf.len()) / unit * unit], offset)?;
        Err(self.fault("injected short-write", OpKind::Write))
    }

    fn sync_data(&self) -> io::Result<()> {
        let partial = self.check(OpKind::SyncData)?;
        if let Some(Partial::LostSync) = partial {
            self.inner.forget_unsynced();
            return Err(self.fault("injected lost-sync", OpKind::SyncData));
        }
        self.inner.sync_data()?;
        self.answer(partial, OpKind::SyncData)
    }

    fn forget_unsynced(&self) {
        self.inner.forget_unsynced();
    }

    fn start_writeback(&self, offset: u64, len: u64) -> io::Result<()> {
        self.check(OpKind::Hint)?;
        self.inner.start_writeback(offset, len)
    }

    fn wait_for_writeback(&self, offset: u64, len: u64) -> io::Result<()> {
        self.check(OpKind::Hint)?;
        self.inner.wait_for_writeback(offset, len)
    }

    fn len(&self) -> io::Result<u64> {
        self.check(OpKind::Stat)?;
        self.inner.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let partial = self.check(OpKind::SetLen)?;
        self.inner.set_len(len)?;
        self.answer(partial, OpKind::SetLen)
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        let partial = self.check(OpKind::Allocate)?;
        self.inner.allocate(offset, len)?;
        self.answer(partial, OpKind::Allocate)
    }

    fn will_need(&self, offset: u64, len: u64) -> io::Result<()> {
        // Never fails: readers ignore errors of this hint.
        self.inner.will_need(offset, len)
    }
    fn drop_cache(&self, offset: u64, len: u64) -> io::Result<()> {
        self.check(OpKind::Hint)?;
        self.inner.drop_cache(offset, len)
    }

    fn is_direct(&self) -> bool {
        self.inner.is_direct()
    }
}
