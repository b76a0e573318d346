//! Subcommands: a command's usage names them, and says how many words each takes.
//!
//! ```text
//!   "get pattern ... | set name value ... | resetstat"   -->   get: 3 words or more; set: 4 or more; resetstat: 2
//! ```

use super::help::HELP;
use super::table::Command;
use crate::resp::Request;

/// Commands with words of their own for what they do not know.
const OPEN: &[&str] = &["cluster", "debug", "function"];

/// What stands between the ways to say a command that has subcommands.
const BAR: &str = " | ";

/// Whether a usage has subcommands. The table knows before it is asked: each request asks.
pub(super) const fn are_in(usage: &str) -> bool {
    let (usage, bar) = (usage.as_bytes(), BAR.as_bytes());
    let mut at = 0;
    while at + bar.len() <= usage.len() {
        if usage[at] == bar[0] && usage[at + 1] == bar[1] && usage[at + 2] == bar[2] {
            return true;
        }
        at += 1;
    }
    false
}

/// How many words a way to say a command takes, with the command's name; negative: the least number.
fn arity_of(way: &str) -> i32 {
    let (mut words, mut depth, mut is_open) = (1, 0, false);
    for word in way.split(' ') {
        match word {
            "..." => is_open = true,
            _ if depth > 0 || word.starts_with('[') => is_open = true,
            _ => words += 1,
        }
        depth += word.matches('[').count() as i32 - word.matches(']').count() as i32;
    }
    if is_open { -words } else { words }
}

impl Command {
    /// The ways to say it, if it has subcommands: each begins with one. Alternatives stand apart by ` | `.
    fn ways(&self) -> impl Iterator<Item = &'static str> {
        let usage = self.usage.strip_prefix('[').map_or(self.usage, |inner| inner.trim_end_matches(']'));
        let ways = self.has_subcommands.then(|| usage.split(BAR).chain([HELP]));
        ways.into_iter().flatten()
    }

    /// Its subcommands.
    pub fn subcommands(&self) -> impl Iterator<Item = &'static str> {
        self.ways().filter_map(|way| way.split(' ').next())
    }

    /// The subcommand of a request, if there are any.
    pub fn asked_subcommand(&self, request: &Request) -> Option<&'static str> {
        self.subcommands().find(|word| request.is(1, word))
    }

    /// How many words a subcommand takes, as [`Command::arity`].
    pub fn subcommand_arity(&self, sub: &str) -> i32 {
        self.ways().find(|way| way.split(' ').next() == Some(sub)).map_or(-2, arity_of)
    }

    /// What is wrong with the second word of a request, or with the number of those behind it.
    pub fn wrong_subcommand(&self, request: &Request) -> Option<String> {
        let given = request.get(1)?;
        if !self.has_subcommands {
            return None;
        }
        let shown = |word: &[u8]| String::from_utf8_lossy(&word[..word.len().min(128)]).into_owned();
        match self.asked_subcommand(request) {
            None if OPEN.contains(&self.name) => None,
            None => Some(format!(
                "ERR unknown subcommand '{}'. Try {} HELP.",
                shown(given),
                self.name.to_uppercase()
            )),
            Some(sub) => {
                let (arity, len) = (self.subcommand_arity(sub), request.len() as i32);
                let is_right = if arity < 0 { len >= -arity } else { len == arity };
                (!is_right)
                    .then(|| format!("ERR wrong number of arguments for '{}|{sub}' command", self.name))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usage_says_how_many_words_a_subcommand_takes() {
        for (way, arity) in [
            ("kill", 2),
            ("load script", 3),
            ("flush [async|sync]", -2),
            ("exists digest ...", -3),
            ("stream key [full [count n]]", -3),
            ("set name value ...", -4),
        ] {
            assert_eq!(arity_of(way), arity, "{way}");
        }
    }
}
