//! Strings that are set or removed only if they have a value, or a digest of it.

use xxhash_rust::xxh3::xxh3_64;

use super::strings::Lifetime;
use crate::base::events::Event;
use crate::command::spec::Group::String as Strings;
use crate::resp::Request;
use crate::resp::fail::{Done, SYNTAX};
use crate::resp::numbers::parse_int;
use crate::run::cx::Cx;
use crate::run::registry::row::*;
use crate::types::Kind;

#[rustfmt::skip]
pub(super) const TABLE: &[Command] = &[
    command("delex", -2, WRITE | FAST, FIRST, Strings, "key [ifeq text|ifne text|ifdeq digest|ifdne digest]", "Removes a key, or a string that has, or has not, a value or a digest.", delex).uses(Uses::Asked(uses::of_delex)),
    command("digest", 2, READ | FAST, FIRST, Strings, "key", "Returns the digest of a string: XXH3 with 64 bits, in hexadecimal.", digest),
    command("msetex", -4, WRITE | DENY_OOM, Keys::NumberedPairs(1), Strings, "n key text ... [nx|xx] [ex s|px ms|exat t|pxat t|keepttl]", "Sets several strings and when they expire.", msetex).each(KeyUse::SET),
];

/// What the value of a string is compared with.
#[derive(Clone, Copy)]
enum Test<'r> {
    Text(&'r [u8]),
    Digest(&'r [u8]),
}

/// A condition on the value of a string.
#[derive(Clone, Copy)]
pub(super) struct Condition<'r> {
    test: Test<'r>,
    /// Whether the value has to be equal, or different.
    is_equal: bool,
}

/// Length of a digest.
const DIGEST_LEN: usize = 16;

fn digest_of(text: &[u8]) -> String {
    format!("{:016x}", xxh3_64(text))
}

impl<'r> Condition<'r> {
    /// Parses a condition. Its operand is the word behind `at`.
    pub(super) fn of(request: &'r Request, at: usize) -> Option<Self> {
        let operand = request.get(at + 1)?;
        let (test, is_equal) = match request[at].to_ascii_lowercase().as_slice() {
            b"ifeq" => (Test::Text(operand), true),
            b"ifne" => (Test::Text(operand), false),
            b"ifdeq" => (Test::Digest(operand), true),
            b"ifdne" => (Test::Digest(operand), false),
            _ => return None,
        };
        Some(Condition { test, is_equal })
    }

    /// Returns whether the condition holds for a value. A key that does not exist differs from all values.
    pub(super) fn holds(self, value: Option<&[u8]>) -> Done<bool> {
        let Some(value) = value else { return Ok(!self.is_equal) };
        let is_same = match self.test {
            Test::Text(text) => text == value,
            Test::Digest(digest) if digest.len() != DIGEST_LEN => {
                return Err("ERR digest must be exactly 16 hexadecimal characters".into());
            }
            Test::Digest(digest) => digest.eq_ignore_ascii_case(digest_of(value).as_bytes()),
        };
        Ok(is_same == self.is_equal)
    }
}

fn digest(cx: &mut Cx<'_>, request: &Request) -> Done {
    let digest = cx.string(&request[1])?.map(|main| digest_of(main.text()));
    cx.out.bulk_or_null(digest.as_deref().map(str::as_bytes));
    Ok(())
}

fn delex(cx: &mut Cx<'_>, request: &Request) -> Done {
    let key = &request[1];
    if !matches!(request.len(), 2 | 4) {
        return Err("ERR wrong number of arguments for 'delex' command".into());
    }
    let Some(main) = cx.main(key)? else {
        cx.out.int(0);
        return Ok(());
    };
    if request.len() == 4 {
        if main.kind != Kind::String {
            return Err("ERR Key should be of string type if conditions are specified".into());
        }
        let condition = Condition::of(request, 2);
        let condition = condition.ok_or("ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE")?;
        if !condition.holds(Some(main.text()))? {
            cx.out.int(0);
            return Ok(());
        }
    }
    cx.remove_key(key, &main)?;
    cx.event(Event::Generic, "del", key);
    cx.out.int(1);
    Ok(())
}

fn msetex(cx: &mut Cx<'_>, request: &Request) -> Done {
    let count = parse_int(&request[1]).filter(|count| (1..=i64::from(i32::MAX)).contains(count));
    let count = count.ok_or("ERR invalid numkeys value")? as usize;
    if count > (request.len() - 2) / 2 {
        return Err("ERR wrong number of key-value pairs".into());
    }
    let end = 2 + 2 * count;
    let (mut life, mut must_exist, mut at) = (Lifetime::Unsaid, None, end);
    while at < request.len() {
        let exist = [request.is(at, "xx"), request.is(at, "nx")];
        match Lifetime::of(request, at) {
            Some(said) if said != Lifetime::Persist && said.may_follow(life) => {
                life = said;
                at += said.words();
            }
            None if exist != [false; 2] && must_exist.is_none_or(|must| must == exist[0]) => {
                must_exist = Some(exist[0]);
                at += 1;
            }
            _ => return Err(SYNTAX.into()),
        }
    }
    let moment = life.moment(cx, request, "msetex")?;
    for at in (2..end).step_by(2) {
        if must_exist.is_some() && must_exist != Some(cx.main(&request[at])?.is_some()) {
            cx.out.int(0);
            return Ok(());
        }
    }
    for at in (2..end).step_by(2) {
        let key = &request[at];
        let old = cx.main(key)?;
        let kept = old.as_ref().map_or(0, |old| if life == Lifetime::Keep { old.expires } else { 0 });
        cx.put_string(key, old.as_ref(), &request[at + 1], moment.map_or(kept, |at| at as u64))?;
        cx.event(Event::String, "set", key);
        if moment.is_some() {
            cx.event(Event::Generic, "expire", key);
        }
    }
    cx.out.int(1);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_redis() {
        for (text, digest) in [
            (&b"hello"[..], "9555e8555c62dcfd"),
            (b"", "2d06800538d394c2"),
            (b"123", "404a763b3f4c8c9a"),
            (b"v8", "0cc76dbb41381419"),
        ] {
            assert_eq!(digest_of(text), digest);
        }
    }

    #[test]
    fn a_missing_key_differs_from_all_values() {
        let holds = |line: &str, value| {
            let request = Request::of(line.split(' '));
            Condition::of(&request, 0).unwrap().holds(value).ok()
        };
        let digest = "9555E8555C62DCFD";
        for (line, when_equal, when_not, when_missing) in [
            ("ifeq hello".to_owned(), true, false, false),
            ("IFNE hello".to_owned(), false, true, true),
            (format!("ifdeq {digest}"), true, false, false),
            (format!("IFDNE {digest}"), false, true, true),
        ] {
            assert_eq!(holds(&line, Some(b"hello")), Some(when_equal), "{line}");
            assert_eq!(holds(&line, Some(b"other")), Some(when_not), "{line}");
            assert_eq!(holds(&line, None), Some(when_missing), "{line}");
        }
        assert_eq!(holds("ifdeq short", Some(b"hello")), None);
        assert_eq!(holds("ifdeq short", None), Some(false));
        assert!(Condition::of(&Request::of(["ifeq"]), 0).is_none());
    }
}
