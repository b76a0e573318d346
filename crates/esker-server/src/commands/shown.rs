//! The words of a command as others see them, in the slow log and by `MONITOR`: without passwords.

use std::borrow::Cow;

use super::table::Command;
use crate::resp::Request;

/// What stands for a password.
const REDACTED: &[u8] = b"(redacted)";
/// Options whose values are passwords, or names that go with them.
const SECRET_OPTIONS: [&str; 7] = [
    "masterauth",
    "masteruser",
    "primaryauth",
    "primaryuser",
    "requirepass",
    "tls-client-key-file-pass",
    "tls-key-file-pass",
];
/// The most words of a command, and the most bytes of each word, that the slow log keeps.
const WORDS_MAX: usize = 32;
const WORD_BYTES_MAX: usize = 128;

/// The words of a request.
pub(super) fn words<'r>(command: &Command, request: &'r Request) -> Vec<&'r [u8]> {
    let mut words: Vec<&[u8]> = request.from(0).collect();
    let secret: Vec<usize> = match command.name {
        "auth" => (1..words.len()).collect(),
        "hello" => {
            (1..words.len()).find(|at| request.is(*at, "auth")).map_or(Vec::new(), |at| vec![at + 1, at + 2])
        }
        "acl" if ["setuser", "getuser", "deluser"].iter().any(|sub| request.is(1, sub)) => {
            (2..words.len()).collect()
        }
        "config" if request.is(1, "set") => {
            let is_secret = |at: &usize| SECRET_OPTIONS.iter().any(|name| request.is(*at, name));
            (2..words.len()).step_by(2).filter(is_secret).map(|at| at + 1).collect()
        }
        _ => Vec::new(),
    };
    for at in secret {
        if let Some(word) = words.get_mut(at) {
            *word = REDACTED;
        }
    }
    words
}

/// The same, the long ones and the last of many cut off.
pub(super) fn short_words(command: &Command, request: &Request) -> Vec<Vec<u8>> {
    let words = words(command, request);
    let kept = if words.len() > WORDS_MAX { WORDS_MAX - 1 } else { words.len() };
    let mut short: Vec<Vec<u8>> = words[..kept].iter().map(|word| short_word(word).into_owned()).collect();
    if kept < words.len() {
        short.push(format!("... ({} more arguments)", words.len() - kept).into_bytes());
    }
    short
}

fn short_word(word: &[u8]) -> Cow<'_, [u8]> {
    if word.len() <= WORD_BYTES_MAX {
        return Cow::Borrowed(word);
    }
    let rest = format!("... ({} more bytes)", word.len() - WORD_BYTES_MAX);
    Cow::Owned([&word[..WORD_BYTES_MAX], rest.as_bytes()].concat())
}

#[cfg(test)]
mod tests {
    use super::super::table::command_of;
    use super::*;

    #[test]
    fn passwords_are_not_shown_and_long_words_are_cut() {
        let show = |text: &str| {
            let request = Request::of(text.split(' '));
            let command = command_of(&request);
            let words = short_words(command, &request);
            words.iter().map(|word| String::from_utf8_lossy(word)).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(show("auth ann secret"), "auth (redacted) (redacted)");
        assert_eq!(show("hello 3 setname a auth ann secret"), "hello 3 setname a auth (redacted) (redacted)");
        assert_eq!(show("acl setuser ann >secret"), "acl setuser (redacted) (redacted)");
        assert_eq!(show("config set hz 5 REQUIREPASS x"), "config set hz 5 REQUIREPASS (redacted)");
        assert_eq!(show("config get requirepass"), "config get requirepass");
        assert!(show(&format!("set k {}", "x".repeat(130))).ends_with("xx... (2 more bytes)"));
        assert!(show(&format!("del{}", " k".repeat(40))).ends_with("k ... (10 more arguments)"));
    }
}
