//! `DUMP` and `RESTORE`: a key as bytes, in a format of this server.
//!
//! ```text
//!   "ESK1" | length (4) | main record | parts: length, sub-key, length, value | FNV-1a of all before (8)
//! ```

use crate::base::events::Event;
use crate::command::spec::Group::Generic;
use crate::resp::Request;
use crate::resp::fail::{Done, SYNTAX};
use crate::resp::numbers::int;
use crate::run::cx::Cx;
use crate::run::registry::row::*;
use crate::store::{Order, Span, Value};
use crate::types::{Collection, Kind, Main, check_copy};
use std::ops::ControlFlow;

#[rustfmt::skip]
pub(super) const TABLE: &[Command] = &[
    command("dump", 2, READ, FIRST, Generic, "key", "Returns a key as bytes for RESTORE.", dump),
    command("restore", -4, WRITE | DENY_OOM | DANGEROUS, FIRST, Generic, "key milliseconds bytes [replace] [absttl] [idletime s] [freq n]", "Creates a key from the bytes returned by DUMP.", restore).each(KeyUse::SET),
];

const MAGIC: &[u8; 4] = b"ESK1";
const WRONG: &str = "ERR DUMP payload version or checksum are wrong";

/// Bytes that are checksummed between two checks of a script's time limit.
const SUM_PIECE: usize = 1 << 18;

fn checksum(cx: &Cx<'_>, bytes: &[u8]) -> Done<u64> {
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

fn take<'b>(bytes: &mut &'b [u8]) -> Option<&'b [u8]> {
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
    let mut bytes = MAGIC.to_vec();
    put(&mut bytes, &main.with_expiry(0));
    if main.kind != Kind::String {
        let collection = Collection::of(&request[1], &main)?;
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

/// The main record, and the parts that are separate records.
type Dumped = (Main, Vec<(Vec<u8>, Vec<u8>)>);

fn decode(bytes: &[u8]) -> Option<Dumped> {
    let (body, sum) = bytes.split_last_chunk::<8>()?;
    let mut rest =
        body.strip_prefix(MAGIC).filter(|_| add_to_sum(SUM_START, body) == u64::from_le_bytes(*sum))?;
    let main = Main::decode(Value::from(take(&mut rest)?)).ok()?;
    let mut parts = Vec::new();
    while !rest.is_empty() {
        parts.push((take(&mut rest)?.to_vec(), take(&mut rest)?.to_vec()));
    }
    // Any client can forge a checksum. The copy gets its own version and expiry.
    (main.expires == 0 && main.raw() == main.with_expiry(0)).then_some(())?;
    check_copy(&main, &parts).ok()?;
    Some((main, parts))
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

fn restore(cx: &mut Cx<'_>, request: &Request) -> Done {
    let key = &request[1];
    let (mut replaces, mut is_absolute, mut has_use) = (false, false, false);
    let mut at = 4;
    while at < request.len() {
        match request[at].to_ascii_lowercase().as_slice() {
            b"replace" => replaces = true,
            b"absttl" => is_absolute = true,
            b"idletime" if at + 1 < request.len() && !has_use => {
                if int(&request[at + 1])? < 0 {
                    return Err("ERR Invalid IDLETIME value, must be >= 0".into());
                }
                (has_use, at) = (true, at + 1);
            }
            b"freq" if at + 1 < request.len() && !has_use => {
                if !(0..=255).contains(&int(&request[at + 1])?) {
                    return Err("ERR Invalid FREQ value, must be >= 0 and <= 255".into());
                }
                (has_use, at) = (true, at + 1);
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
    gather_parts(cx, &request[3])?;
    let (main, parts) = decode(&request[3]).ok_or(WRONG)?;
    let expires = match (ttl, is_absolute) {
        (0, _) => 0,
        (ttl, true) => ttl,
        (ttl, false) => cx.now.saturating_add(ttl),
    };
    if let Some(old) = &old {
        cx.remove_key(key, old)?;
    }
    if expires == 0 || expires > cx.now {
        if main.kind != Kind::String {
            Collection::save_copy(cx, key, &main, &parts)?;
            if let Some(made) = cx.main(key)?.filter(|_| expires != 0) {
                cx.set_expiry(key, &made, expires)?;
            }
        } else {
            cx.put_main(key, None, expires, &main.with_expiry(expires))?;
        }
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
