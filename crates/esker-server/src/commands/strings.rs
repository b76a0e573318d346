//! Strings.

use super::expiry::deadline;
use super::string_conditions::Condition;
use crate::base::accesses::Note;
use crate::base::events::Event;
use crate::command::spec::Group::String as Strings;
use crate::resp::fail::{Done, Fail, NO_INTEGER, SYNTAX};
use crate::resp::numbers::{decimal_sum, float, int, parse_float, parse_int};
use crate::resp::{Request, format_int};
use crate::run::cx::Cx;
use crate::run::memory::each_value;
use crate::run::registry::row::*;
use crate::store::record::{Kind, Main};

const ADD: u32 = WRITE | DENY_OOM;
const PAIRS: Keys = Keys::At(1, -1, 2);

#[rustfmt::skip]
pub(super) const TABLE: &[Command] = &[
    command("append", 3, ADD | FAST, FIRST, Strings, "key text", "Appends to a string.", append).each(KeyUse::INSERT),
    command("decr", 2, ADD | FAST, FIRST, Strings, "key", "Subtracts one from a number.", |cx, r| add(cx, &r[1], -1)).each(KeyUse::SHOW_UPDATE),
    command("decrby", 3, ADD | FAST, FIRST, Strings, "key n", "Subtracts from a number.", decrby).each(KeyUse::SHOW_UPDATE),
    command("get", 2, READ | FAST | ONE, FIRST, Strings, "key", "Returns the string of a key.", get),
    command("getdel", 2, WRITE | FAST, FIRST, Strings, "key", "Returns the string of a key and removes the key.", getdel).each(KeyUse::TAKE),
    command("getex", -2, WRITE | FAST, FIRST, Strings, "key [ex s|px ms|exat t|pxat t|persist]", "Returns the string of a key and sets its expiry.", getex).each(KeyUse::SHOW_UPDATE),
    command("getrange", 4, READ | ONE, FIRST, Strings, "key start end", "Returns a part of a string.", getrange),
    command("getset", 3, ADD | FAST, FIRST, Strings, "key text", "Sets a string and returns the old one.", getset).each(KeyUse::SHOW_UPDATE),
    command("incr", 2, ADD | FAST, FIRST, Strings, "key", "Adds one to a number.", |cx, r| add(cx, &r[1], 1)).each(KeyUse::SHOW_UPDATE),
    command("incrby", 3, ADD | FAST, FIRST, Strings, "key n", "Adds to a number.", |cx, r| { let n = int(&r[2])?; add(cx, &r[1], n) }).each(KeyUse::SHOW_UPDATE),
    command("incrbyfloat", 3, ADD | FAST, FIRST, Strings, "key n", "Adds to a floating-point number.", incrbyfloat).each(KeyUse::SHOW_UPDATE),
    command("lcs", -3, READ, FIRST_TWO, Strings, "key key [len] [idx] [minmatchlen n] [withmatchlen]", "Returns the longest common subsequence of two strings.", super::lcs::lcs),
    command("mget", -2, READ | FAST, ALL, Strings, "key ...", "Returns the strings of several keys.", mget),
    command("mset", -3, ADD, PAIRS, Strings, "key text ...", "Sets several strings.", mset).each(KeyUse::SET),
    command("msetnx", -3, ADD, PAIRS, Strings, "key text ...", "Sets several strings if none of the keys exists.", msetnx).each(KeyUse::MAKE),
    command("psetex", 4, ADD, FIRST, Strings, "key milliseconds text", "Sets a string that expires after a number of milliseconds.", |cx, r| setex(cx, r, 1)).each(KeyUse::SET),
    command("set", -3, ADD, FIRST, Strings, "key text [nx|xx|ifeq text|ifne text|ifdeq digest|ifdne digest] [get] [ex s|px ms|exat t|pxat t|keepttl]", "Sets a string.", set).uses(Uses::Asked(uses::of_set)),
    command("setex", 4, ADD, FIRST, Strings, "key seconds text", "Sets a string that expires after a number of seconds.", |cx, r| setex(cx, r, 1000)).each(KeyUse::SET),
    command("setnx", 3, ADD | FAST, FIRST, Strings, "key text", "Sets a string if the key does not exist.", setnx).each(KeyUse::MAKE),
    command("setrange", 4, ADD, FIRST, Strings, "key offset text", "Overwrites a part of a string.", setrange),
    command("strlen", 2, READ | FAST | ONE, FIRST, Strings, "key", "Returns the length of a string.", strlen).each(KeyUse::LOOK),
    command("substr", 4, READ | ONE, FIRST, Strings, "key start end", "Same as GETRANGE.", getrange),
];

/// Maximum length of a string.
pub(super) const STRING_BYTES_MAX: usize = 512 << 20;
const TOO_LONG: &str = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";

impl Cx<'_> {
    /// Reads the string of a key.
    pub(super) fn string(&mut self, key: &[u8]) -> Done<Option<Main>> {
        self.main_of(key, Kind::String)
    }
}

fn get(cx: &mut Cx<'_>, request: &Request) -> Done {
    match cx.string(&request[1])? {
        Some(main) => {
            cx.server.observed.stats.hits.add(1);
            cx.out.bulk(main.text());
        }
        None => {
            cx.server.observed.stats.misses.add(1);
            cx.out.null();
        }
    }
    Ok(())
}

/// The expiry that a request gives to a string.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Lifetime {
    Unsaid,
    Keep,
    Persist,
    /// A time, whose number is the word at `at`.
    At {
        at: usize,
        unit: i64,
        is_relative: bool,
    },
}

impl Lifetime {
    /// Parses an option about the expiry. Its number is parsed later, once all words are valid.
    pub(super) fn of(request: &Request, at: usize) -> Option<Self> {
        let (unit, is_relative) = match request[at].to_ascii_lowercase().as_slice() {
            b"ex" => (1000, true),
            b"px" => (1, true),
            b"exat" => (1000, false),
            b"pxat" => (1, false),
            b"keepttl" => return Some(Lifetime::Keep),
            b"persist" => return Some(Lifetime::Persist),
            _ => return None,
        };
        (at + 1 < request.len()).then_some(Lifetime::At { at: at + 1, unit, is_relative })
    }

    /// Returns the number of words of the option.
    pub(super) fn words(self) -> usize {
        if matches!(self, Lifetime::At { .. }) { 2 } else { 1 }
    }

    /// Returns whether this option may follow another one: it is the first, or repeats the same kind.
    pub(super) fn may_follow(self, before: Lifetime) -> bool {
        match (before, self) {
            (
                Lifetime::At { unit: old, is_relative: was_relative, .. },
                Lifetime::At { unit, is_relative, .. },
            ) => (old, was_relative) == (unit, is_relative),
            _ => before == Lifetime::Unsaid || before == self,
        }
    }

    /// Returns the expiry in Unix milliseconds, or none if the request has no time.
    pub(super) fn moment(self, cx: &Cx<'_>, request: &Request, name: &str) -> Done<Option<i64>> {
        let Lifetime::At { at, unit, is_relative } = self else { return Ok(None) };
        let n = int(&request[at])?;
        if n <= 0 {
            return Err(Fail::text(format!("ERR invalid expire time in '{name}' command")));
        }
        deadline(cx, n, unit, is_relative, name).map(Some)
    }
}

/// When `SET` sets a string.
#[derive(Clone, Copy)]
enum When<'r> {
    Always,
    Missing,
    Exists,
    If(Condition<'r>),
}

impl When<'_> {
    /// Returns whether the string is set. A condition on the value is for strings only.
    fn allows(self, old: Option<&Main>) -> Done<bool> {
        match (self, old) {
            (When::Always, _) => Ok(true),
            (When::Missing, old) => Ok(old.is_none()),
            (When::Exists, old) => Ok(old.is_some()),
            (When::If(_), Some(old)) if old.kind != Kind::String => Err(Fail::WrongType),
            (When::If(condition), old) => condition.holds(old.map(Main::text)),
        }
    }
}

/// The options of `SET`.
struct SetOptions<'r> {
    when: When<'r>,
    gets: bool,
    life: Lifetime,
}

fn set_options(request: &Request) -> Done<SetOptions<'_>> {
    let mut options = SetOptions { when: When::Always, gets: false, life: Lifetime::Unsaid };
    let mut at = 3;
    while at < request.len() {
        let word = request[at].to_ascii_lowercase();
        match (Lifetime::of(request, at), Condition::of(request, at), word.as_slice(), options.when) {
            (Some(said), ..) if said != Lifetime::Persist && said.may_follow(options.life) => {
                options.life = said;
                at += said.words() - 1;
            }
            (None, Some(condition), _, When::Always) => {
                options.when = When::If(condition);
                at += 1;
            }
            (None, None, b"nx", When::Always | When::Missing) => options.when = When::Missing,
            (None, None, b"xx", When::Always | When::Exists) => options.when = When::Exists,
            (None, None, b"get", _) => options.gets = true,
            _ => return Err(SYNTAX.into()),
        }
        at += 1;
    }
    Ok(options)
}

fn set(cx: &mut Cx<'_>, request: &Request) -> Done {
    let key = &request[1];
    let SetOptions { when, gets, life } = set_options(request)?;
    let moment = life.moment(cx, request, "set")?;
    let old = cx.main(key)?;
    if gets {
        match &old {
            Some(old) if old.kind != Kind::String => return Err(Fail::WrongType),
            Some(old) => cx.out.bulk(old.text()),
            None => cx.out.null(),
        }
    }
    if !when.allows(old.as_ref())? {
        if !gets {
            cx.out.null();
        }
        return Ok(());
    }
    let expires = match moment {
        Some(at) => at as u64,
        None if life == Lifetime::Keep => old.as_ref().map_or(0, |old| old.expires),
        None => 0,
    };
    cx.put_string(key, old.as_ref(), &request[2], expires)?;
    cx.event(Event::String, "set", key);
    if moment.is_some() {
        cx.event(Event::Generic, "expire", key);
    }
    if !gets {
        cx.out.ok();
    }
    Ok(())
}

fn setex(cx: &mut Cx<'_>, request: &Request, unit: i64) -> Done {
    let key = &request[1];
    let name = if unit == 1 { "psetex" } else { "setex" };
    let n = int(&request[2])?;
    if n <= 0 {
        return Err(Fail::text(format!("ERR invalid expire time in '{name}' command")));
    }
    let at = deadline(cx, n, unit, true, name)?;
    let old = cx.main(key)?;
    cx.put_string(key, old.as_ref(), &request[3], at as u64)?;
    cx.event(Event::String, "set", key);
    cx.event(Event::Generic, "expire", key);
    cx.out.ok();
    Ok(())
}

fn setnx(cx: &mut Cx<'_>, request: &Request) -> Done {
    let is_free = cx.main(&request[1])?.is_none();
    if is_free {
        cx.put_string(&request[1], None, &request[2], 0)?;
        cx.event(Event::String, "set", &request[1]);
    }
    cx.out.int(i64::from(is_free));
    Ok(())
}

fn getset(cx: &mut Cx<'_>, request: &Request) -> Done {
    let old = cx.string(&request[1])?;
    cx.out.bulk_or_null(old.as_ref().map(Main::text));
    cx.put_string(&request[1], old.as_ref(), &request[2], 0)?;
    cx.event(Event::String, "set", &request[1]);
    Ok(())
}

fn getdel(cx: &mut Cx<'_>, request: &Request) -> Done {
    let old = cx.string(&request[1])?;
    cx.out.bulk_or_null(old.as_ref().map(Main::text));
    if let Some(old) = &old {
        cx.remove_key(&request[1], old)?;
        cx.event(Event::Generic, "del", &request[1]);
    }
    Ok(())
}

fn getex(cx: &mut Cx<'_>, request: &Request) -> Done {
    let key = &request[1];
    let mut life = Lifetime::Unsaid;
    let mut at = 2;
    while at < request.len() {
        let said = Lifetime::of(request, at).filter(|said| *said != Lifetime::Keep && said.may_follow(life));
        life = said.ok_or(SYNTAX)?;
        at += life.words();
    }
    let old = cx.string(key)?;
    let Some(old) = old else {
        cx.out.null();
        return Ok(());
    };
    let moment = life.moment(cx, request, "getex")?;
    cx.out.bulk(old.text());
    match moment {
        Some(at) if at <= cx.expiry_now() as i64 => {
            cx.remove_key(key, &old)?;
            cx.event(Event::Generic, "del", key);
        }
        Some(at) => {
            cx.set_expiry(key, &old, at as u64)?;
            cx.event(Event::Generic, "expire", key);
        }
        None if life == Lifetime::Persist && old.expires != 0 => {
            cx.set_expiry(key, &old, 0)?;
            cx.event(Event::Generic, "persist", key);
        }
        _ => {}
    }
    Ok(())
}

fn mget(cx: &mut Cx<'_>, request: &Request) -> Done {
    let keys = request.tail(1);
    cx.out.array(keys.len());
    cx.with_reply(|cx, out| {
        let (reads, space) = (cx.access.reads(), &cx.session.data.main);
        let read = |keys: &[&[u8]], bytes_max| reads.multi_get(space, keys, bytes_max);
        let mut names = keys.iter();
        each_value(&keys, read, |raw| {
            let name = names.next();
            cx.step(raw.as_ref().map_or(0, |raw| raw.len()))?;
            let main = raw.map(Main::decode).transpose()?;
            let text =
                main.as_ref().filter(|main| main.kind == Kind::String && !main.has_expired(cx.expiry_now()));
            if let (Some(key), Some(_)) = (name, &text) {
                cx.note_access(key, Note::Access);
            }
            out.bulk_or_null(text.map(Main::text));
            out.check()
        })
    })
}

fn check_pairs(request: &Request, name: &str) -> Done {
    match request.len() % 2 {
        1 => Ok(()),
        _ => Err(Fail::text(format!("ERR wrong number of arguments for '{name}' command"))),
    }
}

fn set_pairs(cx: &mut Cx<'_>, request: &Request) -> Done {
    for at in (1..request.len()).step_by(2) {
        let old = cx.main(&request[at])?;
        cx.put_string(&request[at], old.as_ref(), &request[at + 1], 0)?;
        cx.event(Event::String, "set", &request[at]);
    }
    Ok(())
}

fn mset(cx: &mut Cx<'_>, request: &Request) -> Done {
    check_pairs(request, "mset")?;
    set_pairs(cx, request)?;
    cx.out.ok();
    Ok(())
}

fn msetnx(cx: &mut Cx<'_>, request: &Request) -> Done {
    check_pairs(request, "msetnx")?;
    for at in (1..request.len()).step_by(2) {
        if cx.main(&request[at])?.is_some() {
            cx.out.int(0);
            return Ok(());
        }
    }
    set_pairs(cx, request)?;
    cx.out.int(1);
    Ok(())
}

fn strlen(cx: &mut Cx<'_>, request: &Request) -> Done {
    let len = cx.string(&request[1])?.map_or(0, |main| main.text().len());
    cx.out.count(len);
    Ok(())
}

fn append(cx: &mut Cx<'_>, request: &Request) -> Done {
    let old = cx.string(&request[1])?;
    let mut text = old.as_ref().map_or(Vec::new(), |old| old.text().to_vec());
    if text.len() + request[2].len() > STRING_BYTES_MAX {
        return Err(TOO_LONG.into());
    }
    text.extend_from_slice(&request[2]);
    let expires = old.as_ref().map_or(0, |old| old.expires);
    cx.put_string(&request[1], old.as_ref(), &text, expires)?;
    cx.event(Event::String, "append", &request[1]);
    cx.out.count(text.len());
    Ok(())
}

fn add(cx: &mut Cx<'_>, key: &[u8], n: i64) -> Done {
    let old = cx.string(key)?;
    let before = old.as_ref().map_or(Ok(0), |old| parse_int(old.text()).ok_or(NO_INTEGER))?;
    let after = before.checked_add(n).ok_or("ERR increment or decrement would overflow")?;
    let mut digits = [0; 20];
    let expires = old.as_ref().map_or(0, |old| old.expires);
    cx.put_string(key, old.as_ref(), format_int(after, &mut digits), expires)?;
    cx.event(Event::String, "incrby", key);
    cx.out.int(after);
    Ok(())
}

fn decrby(cx: &mut Cx<'_>, request: &Request) -> Done {
    let n = int(&request[2])?.checked_neg().ok_or("ERR decrement would overflow")?;
    add(cx, &request[1], n)
}

/// Formats a floating-point number as it is stored: without an exponent.
pub(super) fn plain_float(n: f64) -> String {
    let text = format!("{n}");
    if text == "-0" { "0".to_owned() } else { text }
}

fn incrbyfloat(cx: &mut Cx<'_>, request: &Request) -> Done {
    let key = &request[1];
    let old = cx.string(key)?;
    let before = match &old {
        Some(old) => parse_float(old.text()).ok_or("ERR value is not a valid float")?,
        None => 0.0,
    };
    let after = before + float(&request[2])?;
    if !after.is_finite() {
        return Err("ERR increment would produce NaN or Infinity".into());
    }
    let written = old.as_ref().map_or(&b"0"[..], Main::text);
    let text = decimal_sum(written, &request[2]).unwrap_or_else(|| plain_float(after));
    let expires = old.as_ref().map_or(0, |old| old.expires);
    cx.put_string(key, old.as_ref(), text.as_bytes(), expires)?;
    cx.event(Event::String, "incrbyfloat", key);
    cx.out.bulk(text.as_bytes());
    Ok(())
}

fn getrange(cx: &mut Cx<'_>, request: &Request) -> Done {
    let (start, end) = (int(&request[2])?, int(&request[3])?);
    let main = cx.string(&request[1])?;
    let text = main.as_ref().map_or(&b""[..], Main::text);
    let len = text.len() as i64;
    let from_end = |n: i64| if n < 0 { (len.saturating_add(n)).max(0) } else { n };
    let is_backwards = start < 0 && end < 0 && start > end;
    let (start, end) = (from_end(start), from_end(end).min(len - 1));
    let part = match start <= end && len > 0 && !is_backwards {
        true => &text[start as usize..=end as usize],
        false => b"",
    };
    cx.out.bulk(part);
    Ok(())
}

fn setrange(cx: &mut Cx<'_>, request: &Request) -> Done {
    let (key, part) = (&request[1], &request[3]);
    let offset = usize::try_from(int(&request[2])?).map_err(|_| "ERR offset is out of range")?;
    let old = cx.string(key)?;
    let mut text = old.as_ref().map_or(Vec::new(), |old| old.text().to_vec());
    if !part.is_empty() {
        let end = offset.checked_add(part.len()).filter(|end| *end <= STRING_BYTES_MAX).ok_or(TOO_LONG)?;
        if text.len() < end {
            text.resize(end, 0);
        }
        text[offset..end].copy_from_slice(part);
        let expires = old.as_ref().map_or(0, |old| old.expires);
        cx.put_string(key, old.as_ref(), &text, expires)?;
        cx.event(Event::String, "setrange", key);
    }
    cx.out.count(text.len());
    Ok(())
}
