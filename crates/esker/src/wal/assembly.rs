//! Assembles logical records from their fragments (wal.5).

use std::borrow::Cow;

use super::format::{Kind, RecordHeader};
use super::recovery::Recovered;
use crate::types::SeqNo;

/// The records found so far, and the record whose fragments are still being collected.
pub(super) struct Assembly<F> {
    on_record: F,
    pub(super) unfinished: Option<Unfinished>,
    pub(super) recovered: Recovered,
    /// Offset of the `End` record of the segment being read, and the offset up to which the segment says it
    /// was durable.
    pub(super) end_at: Option<usize>,
    pub(super) synced_to: usize,
}

/// A logical record whose last fragment has not been read yet.
pub(super) struct Unfinished {
    seq: SeqNo,
    pub(super) payload: Vec<u8>,
    pub(super) segment: u64,
    pub(super) offset: usize,
}

impl<F: FnMut(SeqNo, Cow<'_, [u8]>) -> Result<(), String>> Assembly<F> {
    pub(super) fn new(on_record: F) -> Self {
        Assembly { on_record, unfinished: None, recovered: Recovered::default(), end_at: None, synced_to: 0 }
    }

    /// Adds a fragment. The error says why the fragment, or the record that it completes, is not valid here.
    pub(super) fn add(
        &mut self,
        header: RecordHeader,
        payload: &[u8],
        at: (u64, usize),
    ) -> Result<(), String> {
        let starts = matches!(header.kind, Kind::Full | Kind::First);
        match self.unfinished.take() {
            None if !starts => Err("a fragment without a first fragment".to_owned()),
            Some(_) if starts => Err("the previous record is incomplete".to_owned()),
            Some(record) if record.seq != header.seq => Err("a fragment of another record".to_owned()),
            _ if starts && header.seq <= self.recovered.last_seq => {
                Err("sequence numbers do not increase".to_owned())
            }
            None if header.kind == Kind::Full => self.deliver(header.seq, payload.into()),
            None => {
                let (segment, offset) = at;
                let payload = payload.to_vec();
                self.unfinished = Some(Unfinished { seq: header.seq, payload, segment, offset });
                Ok(())
            }
            Some(mut record) => {
                record.payload.extend_from_slice(payload);
                if header.kind == Kind::Last {
                    return self.deliver(record.seq, record.payload.into());
                }
                self.unfinished = Some(record);
                Ok(())
            }
        }
    }

    fn deliver(&mut self, seq: SeqNo, payload: Cow<'_, [u8]>) -> Result<(), String> {
        let bytes = payload.len() as u64;
        (self.on_record)(seq, payload)?;
        self.recovered.records += 1;
        self.recovered.bytes += bytes;
        self.recovered.last_seq = seq;
        Ok(())
    }
}
