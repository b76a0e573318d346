//! One sorted source of a compaction, of any kind: an enum instead of dynamic calls.

use super::run_cursor::RunCursor;
use crate::memtable::MemtableCursor;
use crate::types::cursor::SourceCursor;
use crate::types::op::Kind;
use crate::types::stored::Stored;
use crate::types::{Result, SeqNo, Value};

/// A memtable, a run, or something that stands on top of them (`X`: the writes of a transaction).
pub enum Source<X> {
    /// A memtable.
    Memtable(MemtableCursor),
    /// A run of tables.
    Run(RunCursor),
    /// What stands on top.
    Top(X),
}

/// For readers with nothing on top: cannot exist.
pub enum Nothing {}

macro_rules! delegate {
    ($self:ident, $c:ident => $call:expr) => {
        match $self {
            Source::Memtable($c) => $call,
            Source::Run($c) => $call,
            Source::Top($c) => $call,
        }
    };
}

impl<X: SourceCursor> SourceCursor for Source<X> {
    #[inline]
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        delegate!(self, c => c.seek(key))
    }
    #[inline]
    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        delegate!(self, c => c.seek_before(key))
    }
    fn seek_first(&mut self) -> Result<()> {
        delegate!(self, c => c.seek_first())
    }
    fn seek_last(&mut self) -> Result<()> {
        delegate!(self, c => c.seek_last())
    }
    #[inline]
    fn next(&mut self) -> Result<()> {
        delegate!(self, c => c.next())
    }
    #[inline]
    fn prev(&mut self) -> Result<()> {
        delegate!(self, c => c.prev())
    }
    #[inline]
    fn valid(&self) -> bool {
        delegate!(self, c => c.valid())
    }
    #[inline]
    fn key(&self) -> &[u8] {
        delegate!(self, c => c.key())
    }
    #[inline]
    fn seq(&self) -> SeqNo {
        delegate!(self, c => c.seq())
    }
    #[inline]
    fn kind(&self) -> Kind {
        delegate!(self, c => c.kind())
    }
    #[inline]
    fn stored(&self) -> Stored<&[u8]> {
        delegate!(self, c => c.stored())
    }
    #[inline]
    fn share(&self) -> Stored<Value> {
        delegate!(self, c => c.share())
    }
    fn older(&mut self) -> Result<bool> {
        delegate!(self, c => c.older())
    }
}

impl SourceCursor for Nothing {
    fn seek(&mut self, _: &[u8]) -> Result<()> {
        match *self {}
    }
    fn seek_before(&mut self, _: &[u8]) -> Result<()> {
        match *self {}
    }
    fn seek_first(&mut self) -> Result<()> {
        match *self {}
    }
    fn seek_last(&mut self) -> Result<()> {
        match *self {}
    }
    fn next(&mut self) -> Result<()> {
        match *self {}
    }
    fn prev(&mut self) -> Result<()> {
        match *self {}
    }
    fn valid(&self) -> bool {
        match *self {}
    }
    fn key(&self) -> &[u8] {
        match *self {}
    }
    fn seq(&self) -> SeqNo {
        match *self {}
    }
    fn kind(&self) -> Kind {
        match *self {}
    }
    fn stored(&self) -> Stored<&[u8]> {
        match *self {}
    }
    fn share(&self) -> Stored<Value> {
        match *self {}
    }
    fn older(&mut self) -> Result<bool> {
        match *self {}
    }
}
