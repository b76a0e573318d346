//! A sorted source of a merging cursor. An enum, to avoid dynamic dispatch.

use super::run_cursor::RunCursor;
use crate::memtable::MemtableCursor;
use crate::types::cursor::{SourceCursor, delegate_cursor};
use crate::types::expiry::Expiry;
use crate::types::op::Kind;
use crate::types::stored::Stored;
use crate::types::{Result, SeqNo, Value};

/// A memtable, a run, or a source above them (`X`: the writes of a transaction).
pub enum Source<X> {
    /// A memtable.
    Memtable(MemtableCursor),
    /// A run of tables.
    Run(RunCursor),
    /// A source above memtables and runs.
    Top(X),
}

/// The empty type, for readers without sources above memtables.
pub enum Nothing {}

delegate_cursor!([X: SourceCursor] Source<X> { Source::Memtable, Source::Run, Source::Top });

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
    fn expiry(&self) -> Option<Expiry> {
        match *self {}
    }
    fn share(&self) -> Stored<Value> {
        match *self {}
    }
    fn older(&mut self) -> Result<bool> {
        match *self {}
    }
}
