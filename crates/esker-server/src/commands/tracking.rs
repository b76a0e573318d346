//! `CLIENT TRACKING` and related subcommands. See `clients/tracking.rs`.

use crate::clients::tracking::{Mode, Setting};
use crate::resp::Request;
use crate::resp::fail::{Done, Fail, SYNTAX};
use crate::resp::numbers::int;
use crate::run::cx::Cx;

/// `CLIENT TRACKING on|off [REDIRECT id] [BCAST] [PREFIX text ...] [OPTIN] [OPTOUT] [NOLOOP]`
pub(super) fn track(cx: &mut Cx<'_>, request: &Request) -> Done {
    let setting = setting(cx, request)?;
    let client = cx.session.client.clone();
    if request.is(2, "off") {
        cx.server.clients.tracking.end(&client);
    } else if request.is(2, "on") {
        let setting = checked(&client.tracking, setting)?;
        if setting.is_bcast {
            check_prefixes(&cx.server.clients.tracking.prefixes_of(&client), &setting.prefixes)?;
        }
        let setting = match setting.is_bcast && setting.prefixes.is_empty() {
            true => Setting { prefixes: vec![Vec::new()], ..setting },
            false => setting,
        };
        let server = cx.server;
        let waker = server.sequencer.changes_waker();
        if !server.clients.track(&client, &setting, waker, || server.changes())? {
            return Err("ERR this store does not report changes, so keys cannot be tracked".into());
        }
    } else {
        return Err(SYNTAX.into());
    }
    cx.out.ok();
    Ok(())
}

/// Parses the options.
fn setting(cx: &Cx<'_>, request: &Request) -> Done<Setting> {
    let mut setting = Setting::default();
    let mut at = 3;
    while at < request.len() {
        let next = request.get(at + 1);
        match (request[at].to_ascii_lowercase().as_slice(), next) {
            (b"redirect", Some(id)) => {
                if setting.redirect != 0 {
                    return Err("ERR A client can only redirect to a single other client".into());
                }
                let id = int(id)?;
                let target = u64::try_from(id).ok().and_then(|id| cx.server.clients.get(id));
                let target = target.ok_or("ERR The client ID you want redirect to does not exist")?;
                setting.redirect = target.id;
                at += 1;
            }
            (b"prefix", Some(prefix)) => {
                setting.prefixes.push(prefix.to_vec());
                at += 1;
            }
            (b"bcast", _) => setting.is_bcast = true,
            (b"optin", _) => setting.is_opt_in = true,
            (b"optout", _) => setting.is_opt_out = true,
            (b"noloop", _) => setting.is_no_loop = true,
            _ => return Err(SYNTAX.into()),
        }
        at += 1;
    }
    Ok(setting)
}

/// Checks that the options fit together, and to the mode of the client.
fn checked(mode: &Mode, setting: Setting) -> Done<Setting> {
    let Setting { is_bcast, is_opt_in, is_opt_out, .. } = setting;
    let wrong = if !is_bcast && !setting.prefixes.is_empty() {
        "ERR PREFIX option requires BCAST mode to be enabled"
    } else if mode.is_on() && mode.is_bcast() != is_bcast {
        "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then re-enabling it \
         with a different mode."
    } else if is_bcast && (is_opt_in || is_opt_out) {
        "ERR OPTIN and OPTOUT are not compatible with BCAST"
    } else if is_opt_in && is_opt_out {
        "ERR You can't specify both OPTIN mode and OPTOUT mode"
    } else if is_opt_in && mode.is_opt_out() || is_opt_out && mode.is_opt_in() {
        "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then re-enabling it \
         with a different mode."
    } else {
        return Ok(setting);
    };
    Err(wrong.into())
}

/// Checks that no prefix begins another one. So a client is notified of each change once.
fn check_prefixes(known: &[Vec<u8>], added: &[Vec<u8>]) -> Done {
    let overlap = |a: &[u8], b: &[u8]| a.starts_with(b) || b.starts_with(a);
    let fail = |prefix: &[u8], of: &str, other: &[u8]| {
        Fail::text(format!(
            "ERR Prefix '{}' overlaps with {of} prefix '{}'. Prefixes for a single client must not overlap.",
            String::from_utf8_lossy(prefix),
            String::from_utf8_lossy(other)
        ))
    };
    for (at, prefix) in added.iter().enumerate() {
        if let Some(other) = known.iter().find(|other| overlap(prefix, other)) {
            return Err(fail(prefix, "an existing", other));
        }
        if let Some(other) = added[at + 1..].iter().find(|other| overlap(prefix, other)) {
            return Err(fail(prefix, "another provided", other));
        }
    }
    Ok(())
}

/// `CLIENT CACHING yes|no`
pub(super) fn caching(cx: &mut Cx<'_>, request: &Request) -> Done {
    let mode = &cx.session.client.tracking;
    if !mode.is_on() {
        return Err(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT \
                    mode enabled"
                .into(),
        );
    }
    match (request.is(2, "yes"), request.is(2, "no")) {
        (true, _) if !mode.is_opt_in() => {
            Err("ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.".into())
        }
        (_, true) if !mode.is_opt_out() => {
            Err("ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.".into())
        }
        (false, false) => Err(SYNTAX.into()),
        _ => {
            mode.set_caching(true);
            cx.out.ok();
            Ok(())
        }
    }
}

/// `CLIENT TRACKINGINFO`
pub(super) fn show(cx: &mut Cx<'_>) {
    let client = &cx.session.client;
    let (words, redirect) = (client.tracking.words(), client.tracking.shown_redirect());
    let prefixes = cx.server.clients.tracking.prefixes_of(client);
    let out = &mut *cx.out;
    out.map(3);
    out.bulk(b"flags");
    out.set(words.len());
    words.iter().for_each(|word| out.bulk(word.as_bytes()));
    out.bulk(b"redirect");
    out.int(redirect);
    out.bulk(b"prefixes");
    out.array(prefixes.len());
    prefixes.iter().for_each(|prefix| out.bulk(prefix));
}
