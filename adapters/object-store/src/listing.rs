//! Lists objects in the order of their paths.

use std::ops::Bound;
use std::sync::Arc;

use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{Error, ListResult, ObjectMeta};

use crate::error::{Failed, Result, blocking, generic};
use crate::parts::Parts;
use crate::stored::{Object, decode};

/// Objects that are read at a time.
const PAGE: usize = 1000;

/// Comes right after `/` in the order of bytes.
const AFTER_SLASH: u8 = b'/' + 1;

/// Where a listing goes on, or that it has ended.
enum Next {
    From(Bound<Vec<u8>>),
    End,
}

/// Streams the objects under a prefix, after an offset. All are of one snapshot.
pub(crate) fn stream(
    parts: Arc<Parts>,
    prefix: Option<&Path>,
    offset: Option<&Path>,
) -> BoxStream<'static, Result<ObjectMeta>> {
    let (start, end) = bounds(prefix.unwrap_or(&Path::default()));
    let offset = offset.map(|offset| offset.as_ref().as_bytes().to_vec());
    let from = match offset {
        Some(offset) if offset >= start => Bound::Excluded(offset),
        _ => Bound::Included(start),
    };
    let state = parts.db.snapshot();
    let page = move |next: Next| {
        let (parts, state, end) = (parts.clone(), state.clone(), end.clone());
        async move {
            let Next::From(from) = next else { return Ok::<_, Error>(None) };
            let (objects, next) = blocking(move || page(&parts, &state, from, end)).await?;
            Ok(Some((stream::iter(objects.into_iter().map(Ok::<_, Error>)), next)))
        }
    };
    stream::try_unfold(Next::From(from), page).try_flatten().boxed()
}

fn page(
    parts: &Parts,
    state: &esker::Snapshot,
    from: Bound<Vec<u8>>,
    end: Bound<Vec<u8>>,
) -> Result<(Vec<ObjectMeta>, Next), Failed> {
    if is_empty(&from, &end) {
        return Ok((Vec::new(), Next::End));
    }
    let mut objects = Vec::new();
    for entry in state.range(&parts.objects, (from, end)) {
        let (key, value) = entry?;
        objects.push(meta(&key, &value)?);
        if objects.len() == PAGE {
            return Ok((objects, Next::From(Bound::Excluded(key.to_vec()))));
        }
    }
    Ok((objects, Next::End))
}

/// Lists one level: the objects right under a prefix, and the prefixes of those further below.
pub(crate) fn level(parts: &Parts, prefix: &Path) -> Result<ListResult, Failed> {
    let state = parts.db.snapshot();
    let (start, end) = bounds(prefix);
    let name_at = start.len();
    let (mut objects, mut common_prefixes) = (Vec::new(), Vec::new());
    let mut from = start;
    // A walk ends at an object further below, and the next one begins behind all that share its prefix.
    loop {
        let mut behind = None;
        for entry in state.range(&parts.objects, (Bound::Included(from), end.clone())) {
            let (key, value) = entry?;
            let name = key.get(name_at..).unwrap_or_default();
            let Some(slash) = name.iter().position(|byte| *byte == b'/') else {
                if !name.is_empty() {
                    objects.push(meta(&key, &value)?);
                }
                continue;
            };
            let common = &key[..name_at + slash];
            common_prefixes.push(path(common)?);
            behind = Some([common, &[AFTER_SLASH]].concat());
            break;
        }
        match behind {
            Some(next) => from = next,
            None => return Ok(ListResult { objects, common_prefixes, extensions: Default::default() }),
        }
    }
}

/// Returns the range of the paths under a prefix, without the prefix itself.
fn bounds(prefix: &Path) -> (Vec<u8>, Bound<Vec<u8>>) {
    let prefix = prefix.as_ref().as_bytes();
    if prefix.is_empty() {
        return (Vec::new(), Bound::Unbounded);
    }
    ([prefix, b"/"].concat(), Bound::Excluded([prefix, &[AFTER_SLASH]].concat()))
}

fn is_empty(from: &Bound<Vec<u8>>, end: &Bound<Vec<u8>>) -> bool {
    match (from, end) {
        (Bound::Included(from) | Bound::Excluded(from), Bound::Excluded(end)) => from >= end,
        _ => false,
    }
}

fn meta(key: &[u8], value: &[u8]) -> Result<ObjectMeta> {
    decode::<Object>(value)?.meta(path(key)?)
}

fn path(key: &[u8]) -> Result<Path> {
    Ok(Path::parse(std::str::from_utf8(key).map_err(generic)?)?)
}
