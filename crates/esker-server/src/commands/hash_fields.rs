//! Deadlines of the fields of hashes, and commands that get or set fields together with them.

use super::hashes::{open, put};
use crate::base::events::Event;
use crate::command::spec::Group::Hash;
use crate::resp::Request;
use crate::resp::fail::{Done, Fail};
use crate::resp::numbers::{int, parse_int};
use crate::run::cx::Cx;
use crate::run::registry::row::*;
use crate::types::{Collection, Kind};

const ADD: u32 = WRITE | DENY_OOM | FAST;

#[rustfmt::skip]
pub(super) const TABLE: &[Command] = &[
    command("hexpire", -6, ADD, FIRST, Hash, "key seconds [nx|xx|gt|lt] fields n field ...", "Makes fields expire after a number of seconds.", |cx, r| hexpire(cx, r, Unit::SECONDS)),
    command("hexpireat", -6, ADD, FIRST, Hash, "key unix-seconds [nx|xx|gt|lt] fields n field ...", "Makes fields expire at a time in seconds since 1970.", |cx, r| hexpire(cx, r, Unit::SECONDS.since_1970())),
    command("hexpiretime", -5, READ | FAST, FIRST, Hash, "key fields n field ...", "Returns when fields expire, in seconds since 1970.", |cx, r| httl(cx, r, Unit::SECONDS.since_1970())),
    command("hgetdel", -5, WRITE | FAST, FIRST, Hash, "key fields n field ...", "Returns the values of fields and removes the fields.", hgetdel).each(KeyUse::TAKE),
    command("hgetex", -5, WRITE | FAST, FIRST, Hash, "key [ex s|px ms|exat t|pxat t|persist] fields n field ...", "Returns the values of fields and sets when the fields expire.", hgetex).each(KeyUse::SHOW_UPDATE),
    command("hpersist", -5, WRITE | FAST, FIRST, Hash, "key fields n field ...", "Makes fields not expire.", hpersist),
    command("hpexpire", -6, ADD, FIRST, Hash, "key milliseconds [nx|xx|gt|lt] fields n field ...", "Makes fields expire after a number of milliseconds.", |cx, r| hexpire(cx, r, Unit::MILLISECONDS)),
    command("hpexpireat", -6, ADD, FIRST, Hash, "key unix-milliseconds [nx|xx|gt|lt] fields n field ...", "Makes fields expire at a time in milliseconds since 1970.", |cx, r| hexpire(cx, r, Unit::MILLISECONDS.since_1970())),
    command("hpexpiretime", -5, READ | FAST, FIRST, Hash, "key fields n field ...", "Returns when fields expire, in milliseconds since 1970.", |cx, r| httl(cx, r, Unit::MILLISECONDS.since_1970())),
    command("hpttl", -5, READ | FAST, FIRST, Hash, "key fields n field ...", "Returns the remaining time of fields, in milliseconds.", |cx, r| httl(cx, r, Unit::MILLISECONDS)),
    command("hsetex", -6, ADD, FIRST, Hash, "key [fnx|fxx] [ex s|px ms|exat t|pxat t|keepttl] fields n field value ...", "Sets fields and when they expire.", hsetex),
    command("httl", -5, READ | FAST, FIRST, Hash, "key fields n field ...", "Returns the remaining time of fields, in seconds.", |cx, r| httl(cx, r, Unit::SECONDS)),
];

/// Replies about a field.
const NO_FIELD: i64 = -2;
const NO_DEADLINE: i64 = -1;
const CONDITION_NOT_MET: i64 = 0;
const DONE: i64 = 1;
const REMOVED: i64 = 2;

/// The latest deadline that Redis accepts, in Unix milliseconds.
const DEADLINE_MAX: i64 = (1 << 46) - 1;

/// The unit of a time, and what it is relative to.
#[derive(Clone, Copy)]
struct Unit {
    ms: i64,
    is_relative: bool,
}

impl Unit {
    const SECONDS: Unit = Unit { ms: 1000, is_relative: true };
    const MILLISECONDS: Unit = Unit { ms: 1, is_relative: true };

    const fn since_1970(self) -> Self {
        Unit { is_relative: false, ..self }
    }

    /// The unit of an option of `HGETEX` and `HSETEX`.
    fn of_option(word: &[u8]) -> Option<Self> {
        match word.to_ascii_lowercase().as_slice() {
            b"ex" => Some(Unit::SECONDS),
            b"px" => Some(Unit::MILLISECONDS),
            b"exat" => Some(Unit::SECONDS.since_1970()),
            b"pxat" => Some(Unit::MILLISECONDS.since_1970()),
            _ => None,
        }
    }

    /// Parses a time as Unix milliseconds.
    fn deadline(self, cx: &Cx<'_>, word: &[u8], name: &str) -> Done<u64> {
        let n = int(word)?;
        if n < 0 {
            return Err("ERR invalid expire time, must be >= 0".into());
        }
        let base = if self.is_relative { cx.now as i64 } else { 0 };
        let at = n.checked_mul(self.ms).and_then(|ms| ms.checked_add(base)).filter(|at| *at <= DEADLINE_MAX);
        let wrong = || Fail::text(format!("ERR invalid expire time in '{name}' command"));
        at.map(|at| at as u64).ok_or_else(wrong)
    }

    /// Shows a deadline in this unit, rounded up.
    fn show(self, cx: &Cx<'_>, deadline: u64) -> i64 {
        let base = if self.is_relative { cx.now } else { 0 };
        deadline.saturating_sub(base).div_ceil(self.ms as u64) as i64
    }
}

fn name_of(request: &Request) -> String {
    String::from_utf8_lossy(&request[0]).to_lowercase()
}

/// Parses the words from `FIELDS` on, which are the rest of the request.
fn fields<'r>(request: &'r Request, at: usize, wrong_count: &'static str) -> Done<Vec<&'r [u8]>> {
    if !request.is(at, "fields") {
        return Err("ERR Mandatory argument FIELDS is missing or not at the right position".into());
    }
    let count = request.get(at + 1).and_then(parse_int).and_then(|n| usize::try_from(n).ok());
    let count = count.filter(|count| *count > 0).ok_or(wrong_count)?;
    let fields = request.tail(at + 2);
    if fields.len() != count {
        return Err("ERR The `numfields` parameter must match the number of arguments".into());
    }
    Ok(fields)
}

const NOT_POSITIVE: &str = "ERR Number of fields must be a positive integer";

fn put_numbers(cx: &mut Cx<'_>, numbers: &[i64]) {
    cx.out.array(numbers.len());
    numbers.iter().for_each(|number| cx.out.int(*number));
}

/// Removes a field that the hash has.
fn remove(cx: &mut Cx<'_>, hash: &mut Collection, field: &[u8]) -> Done {
    hash.remove(cx, field)?;
    hash.shape.len = hash.shape.len.saturating_sub(1);
    Ok(())
}

/// Stores a changed hash and publishes the events.
fn save(cx: &mut Cx<'_>, hash: Collection, events: &[&'static str]) -> Done {
    let (key, is_empty) = (hash.key().to_vec(), hash.is_gone(cx)?);
    hash.save(cx)?;
    events.iter().for_each(|name| cx.event(Event::Hash, name, &key));
    if is_empty {
        cx.event(Event::Generic, "del", &key);
    }
    Ok(())
}

/// Which fields get a deadline.
#[derive(Clone, Copy)]
enum Condition {
    Always,
    HasNone,
    HasOne,
    IsLater,
    IsEarlier,
}

impl Condition {
    fn of(word: &[u8]) -> Option<Self> {
        match word.to_ascii_lowercase().as_slice() {
            b"nx" => Some(Condition::HasNone),
            b"xx" => Some(Condition::HasOne),
            b"gt" => Some(Condition::IsLater),
            b"lt" => Some(Condition::IsEarlier),
            _ => None,
        }
    }

    /// Returns whether a deadline may replace `old`. A field without a deadline lasts for ever.
    fn allows(self, old: u64, new: u64) -> bool {
        match self {
            Condition::Always => true,
            Condition::HasNone => old == 0,
            Condition::HasOne => old != 0,
            Condition::IsLater => old != 0 && new > old,
            Condition::IsEarlier => old == 0 || new < old,
        }
    }
}

fn hexpire(cx: &mut Cx<'_>, request: &Request, unit: Unit) -> Done {
    let hash = open(cx, &request[1])?;
    let at = unit.deadline(cx, &request[2], &name_of(request))?;
    let condition = Condition::of(&request[3]);
    let first = if condition.is_some() { 4 } else { 3 };
    let fields = fields(request, first, "ERR Parameter `numFields` should be greater than 0")?;
    let Some(mut hash) = hash else {
        put_numbers(cx, &vec![NO_FIELD; fields.len()]);
        return Ok(());
    };
    let condition = condition.unwrap_or(Condition::Always);
    let mut replies = Vec::with_capacity(fields.len());
    for field in fields {
        replies.push(if hash.get(cx, field)?.is_none() {
            NO_FIELD
        } else if !condition.allows(hash.deadline(cx, field)?, at) {
            CONDITION_NOT_MET
        } else if at <= cx.expiry_now() {
            remove(cx, &mut hash, field)?;
            REMOVED
        } else {
            hash.set_deadline(cx, field, at)?;
            DONE
        });
    }
    if replies.contains(&REMOVED) {
        save(cx, hash, &["hdel"])?;
    } else if replies.contains(&DONE) {
        save(cx, hash, &["hexpire"])?;
    }
    put_numbers(cx, &replies);
    Ok(())
}

fn httl(cx: &mut Cx<'_>, request: &Request, unit: Unit) -> Done {
    let hash = open(cx, &request[1])?;
    let fields = fields(request, 2, NOT_POSITIVE)?;
    cx.out.array(fields.len());
    for field in fields {
        let shown = match &hash {
            Some(hash) if hash.get(cx, field)?.is_some() => match hash.deadline(cx, field)? {
                0 => NO_DEADLINE,
                deadline => unit.show(cx, deadline),
            },
            _ => NO_FIELD,
        };
        cx.out.int(shown);
    }
    Ok(())
}

fn hpersist(cx: &mut Cx<'_>, request: &Request) -> Done {
    let hash = open(cx, &request[1])?;
    let fields = fields(request, 2, NOT_POSITIVE)?;
    let Some(mut hash) = hash else {
        put_numbers(cx, &vec![NO_FIELD; fields.len()]);
        return Ok(());
    };
    let mut replies = Vec::with_capacity(fields.len());
    for field in fields {
        replies.push(if hash.get(cx, field)?.is_none() {
            NO_FIELD
        } else if hash.deadline(cx, field)? == 0 {
            NO_DEADLINE
        } else {
            hash.set_deadline(cx, field, 0)?;
            DONE
        });
    }
    if replies.contains(&DONE) {
        save(cx, hash, &["hpersist"])?;
    }
    put_numbers(cx, &replies);
    Ok(())
}

fn hgetdel(cx: &mut Cx<'_>, request: &Request) -> Done {
    let hash = open(cx, &request[1])?;
    let fields = fields(request, 2, NOT_POSITIVE)?;
    cx.out.array(fields.len());
    let Some(mut hash) = hash else {
        fields.iter().for_each(|_| cx.out.null());
        return Ok(());
    };
    let mut has_removed = false;
    for field in fields {
        let value = hash.get(cx, field)?;
        cx.out.bulk_or_null(value.as_deref());
        cx.out.check()?;
        if value.is_some() {
            remove(cx, &mut hash, field)?;
            has_removed = true;
        }
    }
    if has_removed { save(cx, hash, &["hdel"]) } else { Ok(()) }
}

/// What a command does with the deadlines of fields that it gets or sets.
#[derive(Clone, Copy, PartialEq)]
enum Lifetime {
    Unsaid,
    /// `KEEPTTL`.
    Keep,
    Persist,
    Until(u64),
}

fn hgetex(cx: &mut Cx<'_>, request: &Request) -> Done {
    let hash = open(cx, &request[1])?;
    let (life, first) = match Unit::of_option(&request[2]) {
        Some(unit) => (Lifetime::Until(unit.deadline(cx, &request[3], "hgetex")?), 4),
        None if request.is(2, "persist") => (Lifetime::Persist, 3),
        None => (Lifetime::Unsaid, 2),
    };
    let fields = fields(request, first, NOT_POSITIVE)?;
    cx.out.array(fields.len());
    let Some(mut hash) = hash else {
        fields.iter().for_each(|_| cx.out.null());
        return Ok(());
    };
    let (mut removed, mut changed) = (false, false);
    for field in fields {
        let value = hash.get(cx, field)?;
        cx.out.bulk_or_null(value.as_deref());
        cx.out.check()?;
        match life {
            _ if value.is_none() => {}
            Lifetime::Until(at) if at <= cx.expiry_now() => {
                remove(cx, &mut hash, field)?;
                removed = true;
            }
            Lifetime::Until(at) => {
                hash.set_deadline(cx, field, at)?;
                changed = true;
            }
            Lifetime::Persist if hash.deadline(cx, field)? != 0 => {
                hash.set_deadline(cx, field, 0)?;
                changed = true;
            }
            _ => {}
        }
    }
    match life {
        _ if removed => save(cx, hash, &["hdel"]),
        Lifetime::Persist if changed => save(cx, hash, &["hpersist"]),
        _ if changed => save(cx, hash, &["hexpire"]),
        _ => Ok(()),
    }
}

/// Which fields have to exist for `HSETEX` to set any.
#[derive(Clone, Copy, PartialEq)]
enum Exist {
    Any,
    All,
    None,
}

struct SetOptions {
    life: Lifetime,
    exist: Exist,
    /// Position of the first field.
    first: usize,
}

fn set_options(cx: &Cx<'_>, request: &Request) -> Done<SetOptions> {
    let (mut life, mut exist, mut at) = (Lifetime::Unsaid, Exist::Any, 2);
    let wrong_arity = || Fail::text("ERR wrong number of arguments for 'hsetex' command".to_owned());
    while at < request.len() {
        let word = &request[at];
        if request.is(at, "fields") {
            let pairs = request.len().saturating_sub(at + 2);
            if pairs < 2 {
                return Err(wrong_arity());
            }
            let count = parse_int(&request[at + 1]).filter(|count| (1..=i64::from(i32::MAX)).contains(count));
            let count = count.ok_or("ERR invalid number of fields")?;
            if !pairs.is_multiple_of(2) || count as usize != pairs / 2 {
                return Err(wrong_arity());
            }
            return Ok(SetOptions { life, exist, first: at + 2 });
        }
        let unit = Unit::of_option(word);
        if unit.is_some() || request.is(at, "keepttl") {
            if life != Lifetime::Unsaid {
                return Err("ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified".into());
            }
            life = match unit {
                Some(unit) => {
                    at += 1;
                    let time = request.get(at).ok_or("ERR missing expire time")?;
                    Lifetime::Until(unit.deadline(cx, time, "hsetex")?)
                }
                None => Lifetime::Keep,
            };
        } else if request.is(at, "fxx") || request.is(at, "fnx") {
            if exist != Exist::Any {
                return Err("ERR Only one of FXX or FNX arguments can be specified".into());
            }
            exist = if request.is(at, "fxx") { Exist::All } else { Exist::None };
        } else {
            let word = String::from_utf8_lossy(word).into_owned();
            return Err(Fail::text(format!("ERR unknown argument: {word}")));
        }
        at += 1;
    }
    Err("ERR Mandatory argument FIELDS is missing or not at the right position".into())
}

/// Returns whether the fields of a request exist as required.
fn exist_as(cx: &Cx<'_>, hash: &Collection, request: &Request, options: &SetOptions) -> Done<bool> {
    if options.exist == Exist::Any {
        return Ok(true);
    }
    for at in (options.first..request.len()).step_by(2) {
        if hash.get(cx, &request[at])?.is_some() != (options.exist == Exist::All) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn hsetex(cx: &mut Cx<'_>, request: &Request) -> Done {
    let options = set_options(cx, request)?;
    let mut hash = Collection::open_or_new(cx, &request[1], Kind::Hash)?;
    if !exist_as(cx, &hash, request, &options)? {
        cx.out.int(0);
        return Ok(());
    }
    for at in (options.first..request.len()).step_by(2) {
        let field = &request[at];
        put(cx, &mut hash, field, &request[at + 1])?;
        match options.life {
            Lifetime::Until(at) if at <= cx.expiry_now() => remove(cx, &mut hash, field)?,
            Lifetime::Until(at) => hash.set_deadline(cx, field, at)?,
            Lifetime::Keep => {}
            Lifetime::Unsaid | Lifetime::Persist => hash.set_deadline(cx, field, 0)?,
        }
    }
    let events: &[_] = match options.life {
        Lifetime::Until(at) if at <= cx.expiry_now() => &["hset", "hdel"],
        Lifetime::Until(_) => &["hset", "hexpire"],
        _ => &["hset"],
    };
    save(cx, hash, events)?;
    cx.out.int(1);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_without_a_deadline_lasts_for_ever() {
        let allowed = |word: &str, old, new| Condition::of(word.as_bytes()).unwrap().allows(old, new);
        assert_eq!([allowed("nx", 0, 5), allowed("NX", 3, 5)], [true, false]);
        assert_eq!([allowed("xx", 0, 5), allowed("xx", 3, 5)], [false, true]);
        assert_eq!([allowed("gt", 0, 5), allowed("gt", 5, 5), allowed("gt", 4, 5)], [false, false, true]);
        assert_eq!([allowed("lt", 0, 5), allowed("lt", 5, 5), allowed("lt", 6, 5)], [true, false, true]);
    }
}
