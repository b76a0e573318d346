//! Commands about the expiry of keys.

use crate::base::events::Event;
use crate::command::spec::Group::Generic;
use crate::resp::Request;
use crate::resp::fail::{Done, Fail};
use crate::resp::numbers::int;
use crate::run::cx::Cx;
use crate::run::registry::row::*;

#[rustfmt::skip]
pub(super) const TABLE: &[Command] = &[
    command("expire", -3, WRITE | FAST, FIRST, Generic, "key seconds [nx|xx|gt|lt]", "Makes a key expire after a number of seconds.", |cx, r| expire(cx, r, 1000, true)),
    command("expireat", -3, WRITE | FAST, FIRST, Generic, "key unix-seconds [nx|xx|gt|lt]", "Makes a key expire at a time in seconds since 1970.", |cx, r| expire(cx, r, 1000, false)),
    command("expiretime", 2, READ | FAST | ONE | NO_ACCESS, FIRST, Generic, "key", "Returns when a key expires, in seconds since 1970.", |cx, r| left(cx, r, 1000, false)),
    command("persist", 2, WRITE | FAST, FIRST, Generic, "key", "Removes the expiry of a key.", persist),
    command("pexpire", -3, WRITE | FAST, FIRST, Generic, "key milliseconds [nx|xx|gt|lt]", "Makes a key expire after a number of milliseconds.", |cx, r| expire(cx, r, 1, true)),
    command("pexpireat", -3, WRITE | FAST, FIRST, Generic, "key unix-milliseconds [nx|xx|gt|lt]", "Makes a key expire at a time in milliseconds since 1970.", |cx, r| expire(cx, r, 1, false)),
    command("pexpiretime", 2, READ | FAST | ONE | NO_ACCESS, FIRST, Generic, "key", "Returns when a key expires, in milliseconds since 1970.", |cx, r| left(cx, r, 1, false)),
    command("pttl", 2, READ | FAST | ONE | NO_ACCESS, FIRST, Generic, "key", "Returns the remaining time of a key, in milliseconds.", |cx, r| left(cx, r, 1, true)),
    command("ttl", 2, READ | FAST | ONE | NO_ACCESS, FIRST, Generic, "key", "Returns the remaining time of a key, in seconds.", |cx, r| left(cx, r, 1000, true)),
];

/// Converts a time argument to Unix milliseconds. The result may be negative, which is long past.
pub(super) fn deadline(cx: &Cx<'_>, n: i64, unit: i64, is_relative: bool, name: &str) -> Done<i64> {
    let base = if is_relative { cx.now as i64 } else { 0 };
    let ms = n.checked_mul(unit).and_then(|ms| ms.checked_add(base));
    ms.ok_or_else(|| Fail::text(format!("ERR invalid expire time in '{name}' command")))
}

fn expire(cx: &mut Cx<'_>, request: &Request, unit: i64, is_relative: bool) -> Done {
    let key = &request[1];
    let name = String::from_utf8_lossy(&request[0]).to_lowercase();
    let (mut nx, mut xx, mut gt, mut lt) = (false, false, false, false);
    for word in request.from(3) {
        match word.to_ascii_lowercase().as_slice() {
            b"nx" => nx = true,
            b"xx" => xx = true,
            b"gt" => gt = true,
            b"lt" => lt = true,
            _ => {
                let word = String::from_utf8_lossy(word).into_owned();
                return Err(Fail::text(format!("ERR Unsupported option {word}")));
            }
        }
    }
    if nx && (xx || gt || lt) {
        return Err("ERR NX and XX, GT or LT options at the same time are not compatible".into());
    }
    if gt && lt {
        return Err("ERR GT and LT options at the same time are not compatible".into());
    }
    let at = deadline(cx, int(&request[2])?, unit, is_relative, &name)?;
    let Some(main) = cx.main(key)? else {
        cx.out.int(0);
        return Ok(());
    };
    let old = if main.expires == 0 { i64::MAX } else { main.expires as i64 };
    let has_one = main.expires != 0;
    if nx && has_one || xx && !has_one || gt && at <= old || lt && has_one && at >= old {
        cx.out.int(0);
        return Ok(());
    }
    if at <= cx.expiry_now() as i64 {
        cx.remove_key(key, &main)?;
        cx.event(Event::Generic, "del", key);
    } else {
        cx.set_expiry(key, &main, at as u64)?;
        cx.event(Event::Generic, "expire", key);
    }
    cx.out.int(1);
    Ok(())
}

fn left(cx: &mut Cx<'_>, request: &Request, unit: u64, is_relative: bool) -> Done {
    let now = cx.now;
    let n = match cx.main(&request[1])? {
        None => -2,
        Some(main) if main.expires == 0 => -1,
        Some(main) if is_relative => ((main.expires.saturating_sub(now) + unit / 2) / unit) as i64,
        Some(main) => ((main.expires + unit / 2) / unit) as i64,
    };
    cx.out.int(n);
    Ok(())
}

fn persist(cx: &mut Cx<'_>, request: &Request) -> Done {
    let key = &request[1];
    let main = cx.main(key)?.filter(|main| main.expires != 0);
    if let Some(main) = &main {
        cx.set_expiry(key, main, 0)?;
        cx.event(Event::Generic, "persist", key);
    }
    cx.out.int(i64::from(main.is_some()));
    Ok(())
}
