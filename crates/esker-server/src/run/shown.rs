//! The words of a command as shown in the slow log and by `MONITOR`, without passwords.

use std::borrow::Cow;

use crate::command::spec::Spec;
use crate::resp::Request;

/// Maximum number of words of a command, and maximum bytes per word, in the slow log.
const WORDS_MAX: usize = 32;
const WORD_BYTES_MAX: usize = 128;

/// Returns the words of a request, with long words shortened and words beyond the limit omitted.
pub fn short_words(command: &Spec, request: &Request) -> Vec<Vec<u8>> {
    let words = command.shown_words(request);
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
    use super::*;
    use crate::commands::command_of;

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
