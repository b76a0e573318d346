//! Options of keyspaces outside of databases: in unloaded files, and in commits that another database is to make.
//!
//! ```text
//!   option (varint), value (a string: what an older build does not know can be passed over), ...
//! ```
//!
//! Bytes: docs/formats/unload.md

use std::time::Duration;

use crate::encoding::bytes::{ByteReader, Decoded, put_string, put_varint};
use crate::engine::state::history::History;
use crate::engine::state::keyspace_options::{
    BLOBS_OVER, Counting, HISTORY_MS, HISTORY_VERSIONS, IS_LAZY, KeyspaceOptions, MERGE_OPERATOR, TTL_MS,
};

/// Appends their bytes.
pub(crate) fn encode(options: &KeyspaceOptions, out: &mut Vec<u8>) {
    let history = match options.history {
        History::None => None,
        History::Versions(versions) => Some((HISTORY_VERSIONS, u64::from(versions))),
        History::For(time) => Some((HISTORY_MS, ms(time))),
    };
    let numbers = [
        options.blobs_over.map(|over| (BLOBS_OVER, over as u64)),
        (options.counting == Counting::Lazy).then_some((IS_LAZY, 1)),
        options.default_ttl.map(|ttl| (TTL_MS, ms(ttl))),
        history,
    ];
    for (option, number) in numbers.into_iter().flatten() {
        let mut value = Vec::new();
        put_varint(&mut value, number);
        put_varint(out, option);
        put_string(out, &value);
    }
    if let Some(name) = &options.merge_operator {
        put_varint(out, MERGE_OPERATOR);
        put_string(out, name.as_bytes());
    }
}

/// Whole milliseconds; what is longer than 64 bits can say is as long as they can.
fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The options that all the bytes say, and whether they say others that are not known.
pub(crate) fn decode(reader: &mut ByteReader<'_>) -> Decoded<(KeyspaceOptions, bool)> {
    let mut options = KeyspaceOptions::default();
    let mut has_unknown = false;
    while !reader.is_empty() {
        let (option, value) = (reader.varint()?, reader.string()?);
        let number = || ByteReader::new(value).varint();
        match option {
            BLOBS_OVER => options.blobs_over = Some(usize::try_from(number()?).unwrap_or(usize::MAX)),
            IS_LAZY if number()? != 0 => options.counting = Counting::Lazy,
            IS_LAZY => options.counting = Counting::Exact,
            TTL_MS => options.default_ttl = Some(Duration::from_millis(number()?)),
            HISTORY_VERSIONS => {
                options.history = History::Versions(u32::try_from(number()?).unwrap_or(u32::MAX));
            }
            HISTORY_MS => options.history = History::For(Duration::from_millis(number()?)),
            MERGE_OPERATOR => {
                let name = std::str::from_utf8(value).map(str::to_owned);
                let name = name.map_err(|_| reader.error("the name of a merge operator is no text"))?;
                options.merge_operator = Some(name);
            }
            _ => has_unknown = true,
        }
    }
    Ok((options, has_unknown))
}
