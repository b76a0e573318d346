//! `DUMP` and `RESTORE`: a key as bytes, in a format of this server.
//!
//! ```text
//!   "ESK1" | length (4) | main record | parts: length, sub-key, length, value | FNV-1a of all before (8)
//!   "ESK2" | length (4) | main record | 4 | count (4) | deadlines: length, field, 8, deadline (8) | ...
//! ```
//!
//! `ESK2` is a hash some of whose fields have a deadline. Its main record does not name them.

use crate::base::accesses::Note;
use crate::base::events::Event;
use crate::command::spec::Group::Generic;
use crate::commands::redis_values;
use crate::resp::Request;
use crate::resp::fail::{Done, SYNTAX};
use crate::resp::numbers::int;
use crate::run::cx::Cx;
use crate::run::registry::row::*;
use crate::store::record::Due;
use crate::store::{Order, Span, Value};
use crate::types::{Collection, Copied, Kind, Main, check_copied_deadlines, check_copy};
use std::ops::ControlFlow;

#[rustfmt::skip]
pub(super) const TABLE: &[Command] = &[
    command("dump", 2, READ, FIRST, Generic, "key", "Returns a key as bytes for RESTORE.", dump),
    command("restore", -4, WRITE | DENY_OOM | DANGEROUS, FIRST, Generic, "key milliseconds bytes [replace] [absttl] [idletime s] [freq n]", "Creates a key from the bytes returned by DUMP, also by that of Redis.", restore).each(KeyUse::SET),
];

const MAGIC: &[u8; 4] = b"ESK1";
const MAGIC_WITH_DEADLINES: &[u8; 4] = b"ESK2";
const WRONG: &str = "ERR DUMP payload version or checksum are wrong";

/// Bytes that are checksummed between two checks of a script's time limit.
const SUM_PIECE: usize = 1 << 18;

pub(super) fn checksum(cx: &Cx<'_>, bytes: &[u8]) -> Done<u64> {
    let mut sum = SUM_START;
    for piece in bytes.chunks(SUM_PIECE) {
        cx.step(piece.len())?;
        sum = add_to_sum(sum, piece);
    }
    Ok(sum)
}

const SUM_START: u64 = 0xcbf2_9ce4_8422_2325;

fn add_to_sum(sum: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(sum, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

fn put(bytes: &mut Vec<u8>, piece: &[u8]) {
    bytes.extend_from_slice(&(piece.len() as u32).to_le_bytes());
    bytes.extend_from_slice(piece);
}

pub(super) fn take<'b>(bytes: &mut &'b [u8]) -> Option<&'b [u8]> {
    let (len, rest) = bytes.split_first_chunk::<4>()?;
    let (piece, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
    *bytes = rest;
    Some(piece)
}

fn dump(cx: &mut Cx<'_>, request: &Request) -> Done {
    let Some(main) = cx.main(&request[1])? else {
        cx.out.null();
        return Ok(());
    };
    let mut bytes;
    if main.kind == Kind::String {
        bytes = MAGIC.to_vec();
        put(&mut bytes, &main.with_expiry(0));
    } else {
        let collection = Collection::of(&request[1], &main)?;
        bytes = head(cx, &main, &collection)?;
        collection.try_range(cx, Span::ALL, Order::Up, &mut |sub, value| {
            put(&mut bytes, sub);
            put(&mut bytes, value);
            if bytes.len() > cx.out.bytes_max {
                Err(cx.out.too_large())
            } else {
                Ok(ControlFlow::Continue(()))
            }
        })?;
    }
    let sum = checksum(cx, &bytes)?;
    bytes.extend_from_slice(&sum.to_le_bytes());
    cx.out.bulk(&bytes);
    Ok(())
}

/// Returns the beginning of the payload of a collection: all before its parts.
fn head(cx: &Cx<'_>, main: &Main, collection: &Collection) -> Done<Vec<u8>> {
    let mut bytes;
    if main.deadlines()?.is_some() {
        bytes = MAGIC_WITH_DEADLINES.to_vec();
        put(&mut bytes, &collection.plain_record(cx)?);
        let deadlines = collection.deadlines(cx)?;
        put(&mut bytes, &(deadlines.len() as u32).to_le_bytes());
        for (field, at) in &deadlines {
            put(&mut bytes, field);
            put(&mut bytes, &at.to_le_bytes());
        }
    } else {
        bytes = MAGIC.to_vec();
        put(&mut bytes, &main.with_expiry(0));
    }
    Ok(bytes)
}

/// The main record, and the parts and deadlines of the collection.
type Dumped = (Main, Copied);

fn decode(bytes: &[u8]) -> Option<Dumped> {
    let (body, sum) = bytes.split_last_chunk::<8>()?;
    (add_to_sum(SUM_START, body) == u64::from_le_bytes(*sum)).then_some(())?;
    let (magic, mut rest) = body.split_at_checked(MAGIC.len())?;
    let main = Main::decode(Value::from(take(&mut rest)?)).ok()?;
    let mut copied = Copied::default();
    if magic == MAGIC_WITH_DEADLINES {
        for _ in 0..u32::from_le_bytes(take(&mut rest)?.try_into().ok()?) {
            let field = take(&mut rest)?.to_vec();
            copied.deadlines.push((field, u64::from_le_bytes(take(&mut rest)?.try_into().ok()?)));
        }
    } else if magic != MAGIC {
        return None;
    }
    while !rest.is_empty() {
        copied.parts.push((take(&mut rest)?.to_vec(), take(&mut rest)?.to_vec()));
    }
    // Any client can forge a checksum. The copy gets its own version and expiry.
    (main.expires == 0 && main.raw() == main.with_expiry(0)).then_some(())?;
    check_copy(&main, &copied.parts).ok()?;
    check_copied_deadlines(&main, &copied).ok()?;
    Some((main, copied))
}

/// Removes the fields that have expired since the payload was made. Returns whether anything is left.
fn drop_expired(copied: &mut Copied, now: u64) -> bool {
    let Copied { parts, deadlines } = copied;
    if deadlines.iter().all(|(_, at)| *at > now) {
        return true;
    }
    let is_due = |field: &[u8]| {
        let at = deadlines.binary_search_by(|known| (*known.0).cmp(field));
        at.is_ok_and(|at| deadlines[at].1 <= now)
    };
    parts.retain(|(field, _)| !is_due(field));
    deadlines.retain(|(_, at)| *at > now);
    !parts.is_empty()
}

/// Accounts for the memory of the parts before they are built. Each takes more than its bytes
/// (command_memory.1).
fn gather_parts(cx: &Cx<'_>, bytes: &[u8]) -> Done {
    let mut rest = bytes.get(MAGIC.len()..).unwrap_or_default();
    while let Some(piece) = take(&mut rest) {
        cx.gather(piece.len())?;
    }
    Ok(())
}

/// What a payload holds.
enum Payload {
    /// A value of this server.
    Own(Main, Copied),
    /// A value of Redis.
    Redis(esker_rdb::Value),
}

fn decode_any(cx: &Cx<'_>, bytes: &[u8]) -> Done<Payload> {
    // A payload of Redis begins with the number of a type, which is smaller.
    if bytes.first() != MAGIC.first() {
        return Ok(Payload::Redis(redis_values::decode(cx, bytes, WRONG)?));
    }
    gather_parts(cx, bytes)?;
    let (main, copied) = decode(bytes).ok_or(WRONG)?;
    Ok(Payload::Own(main, copied))
}

/// Stores a value at a key that holds nothing. Returns whether anything of it has not expired.
fn save(cx: &mut Cx<'_>, key: &[u8], payload: Payload, expires: u64) -> Done<bool> {
    let (main, mut copied) = match payload {
        Payload::Own(main, copied) => (main, copied),
        Payload::Redis(value) => return redis_values::save(cx, key, value, expires),
    };
    if !drop_expired(&mut copied, cx.expiry_now()) {
        return Ok(false);
    }
    if main.kind == Kind::String {
        cx.put_main(key, None, Due::key(expires), &main.with_expiry(expires))?;
        return Ok(true);
    }
    Collection::save_copy(cx, key, &main, &copied)?;
    if let Some(made) = cx.main(key)?.filter(|_| expires != 0) {
        cx.set_expiry(key, &made, expires)?;
    }
    Ok(true)
}

fn restore(cx: &mut Cx<'_>, request: &Request) -> Done {
    let key = &request[1];
    let (mut replaces, mut is_absolute, mut used) = (false, false, None);
    let mut at = 4;
    while at < request.len() {
        match request[at].to_ascii_lowercase().as_slice() {
            b"replace" => replaces = true,
            b"absttl" => is_absolute = true,
            b"idletime" if at + 1 < request.len() && used.is_none() => {
                let idle = u64::try_from(int(&request[at + 1])?);
                used = Some(Note::Idle(idle.map_err(|_| "ERR Invalid IDLETIME value, must be >= 0")?));
                at += 1;
            }
            b"freq" if at + 1 < request.len() && used.is_none() => {
                let count = u8::try_from(int(&request[at + 1])?);
                used =
                    Some(Note::Count(count.map_err(|_| "ERR Invalid FREQ value, must be >= 0 and <= 255")?));
                at += 1;
            }
            _ => return Err(SYNTAX.into()),
        }
        at += 1;
    }
    let ttl = u64::try_from(int(&request[2])?).map_err(|_| "ERR Invalid TTL value, must be >= 0")?;
    let old = cx.main(key)?;
    if old.is_some() && !replaces {
        return Err("BUSYKEY Target key name already exists.".into());
    }
    let payload = decode_any(cx, &request[3])?;
    let expires = match (ttl, is_absolute) {
        (0, _) => 0,
        (ttl, true) => ttl,
        (ttl, false) => cx.now.saturating_add(ttl),
    };
    if let Some(old) = &old {
        cx.remove_key(key, old)?;
    }
    if (expires == 0 || expires > cx.expiry_now()) && save(cx, key, payload, expires)? {
        used.into_iter().for_each(|note| cx.note_access(key, note));
        cx.event(Event::Generic, "restore", key);
        cx.filled(key);
    }
    cx.out.ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_bytes_are_refused() {
        let mut bytes = MAGIC.to_vec();
        put(&mut bytes, b"\0text");
        bytes.extend_from_slice(&add_to_sum(SUM_START, &bytes).to_le_bytes());
        assert_eq!(decode(&bytes).unwrap().0.text(), b"text");
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(decode(&damaged).is_none() && decode(&bytes[..at]).is_none(), "{at}");
        }
    }
}
