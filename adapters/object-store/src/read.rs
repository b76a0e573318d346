//! Reads an object: what it is at once, and its content as a stream of chunks of the same snapshot.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt};
use object_store::path::Path;
use object_store::{Attributes, Error, GetOptions, GetResult, GetResultPayload, ObjectMeta};

use crate::content::{Piece, pieces};
use crate::error::{Failed, Result, blocking, generic, not_found};
use crate::parts::Parts;
use crate::stored::{Object, decode, load_attributes};

/// An object that was found, and what of it is wanted.
pub(crate) struct Found {
    state: esker::Snapshot,
    meta: ObjectMeta,
    attributes: Attributes,
    range: Range<u64>,
    pieces: Vec<Piece>,
}

pub(crate) fn find(parts: &Parts, location: Path, options: &GetOptions) -> Result<Found, Failed> {
    if let Some(version) = &options.version {
        let source = format!("version {version}: no versions are kept").into();
        return Err(Error::NotSupported { source }.into());
    }
    let state = parts.db.snapshot();
    let found = state.get(&parts.objects, location.as_ref())?.ok_or_else(|| not_found(&location))?;
    let object: Object = decode(&found)?;
    let meta = object.meta(location)?;
    options.check_preconditions(&meta)?;
    let range = match &options.range {
        Some(range) => range.as_range(meta.size).map_err(generic)?,
        None => 0..meta.size,
    };
    let pieces = if options.head { Vec::new() } else { pieces(&object, range.clone())? };
    let attributes = load_attributes(object.attributes)?;
    Ok(Found { state, meta, attributes, range, pieces })
}

impl Found {
    pub(crate) fn into_result(self, parts: Arc<Parts>) -> GetResult {
        let Found { state, meta, attributes, range, pieces } = self;
        let payload = GetResultPayload::Stream(stream(parts, state, pieces));
        GetResult { payload, meta, range, attributes, extensions: Default::default() }
    }
}

/// object.3
fn stream(
    parts: Arc<Parts>,
    state: esker::Snapshot,
    pieces: Vec<Piece>,
) -> BoxStream<'static, Result<Bytes>> {
    let read = move |piece: Piece| {
        let (parts, state) = (parts.clone(), state.clone());
        blocking(move || piece.read(&state, &parts.content))
    };
    futures::stream::iter(pieces).then(read).boxed()
}
