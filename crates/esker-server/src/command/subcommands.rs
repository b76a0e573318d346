//! Subcommands: a command's usage names them, and says how many words each takes.
//!
//! ```text
//!   "get pattern ... | set name value ... | resetstat"   -->   get: 3 words or more; set: 4 or more; resetstat: 2
//! ```

use super::flag;
use super::spec::Spec;
use crate::resp::Request;

/// The subcommand that all commands with subcommands have.
pub const HELP: &str = "help";

/// What stands between the ways to say a command that has subcommands.
const BAR: &str = " | ";

/// Whether a usage has subcommands. The table knows before it is asked: each request asks.
pub const fn are_in(usage: &str) -> bool {
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

impl Spec {
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

    /// How many words a subcommand takes, as [`Spec::arity`].
    pub fn subcommand_arity(&self, sub: &str) -> i32 {
        self.ways().find(|way| way.split(' ').next() == Some(sub)).map_or(-2, arity_of)
    }

    /// The subcommands whose flags are not those of the command, and their flags.
    pub fn with_own_flags(&self) -> impl Iterator<Item = (&'static str, u32)> {
        self.own_flags.iter().flat_map(|(words, flags)| words.iter().map(|word| (*word, *flags)))
    }

    /// The flags of a subcommand.
    pub fn subcommand_flags(&self, sub: &str) -> u32 {
        self.with_own_flags().find(|(word, _)| *word == sub).map_or(self.flags, |(_, flags)| flags)
    }

    /// The flags of what a request asks for.
    pub fn flags_of(&self, request: &Request) -> u32 {
        match self.own_flags {
            [] => self.flags,
            _ => self.asked_subcommand(request).map_or(self.flags, |sub| self.subcommand_flags(sub)),
        }
    }

    /// The name of what a request asks for, as users' rights know it: `config|get`.
    pub fn full_name(&self, request: &Request) -> String {
        match self.asked_subcommand(request) {
            Some(word) if !self.is(flag::ONE_RIGHT) => format!("{}|{word}", self.name),
            _ => self.name.to_owned(),
        }
    }

    /// Whether a request asks which subcommands there are.
    pub fn is_help(&self, request: &Request) -> bool {
        request.is(1, HELP) && self.asked_subcommand(request).is_some()
    }

    /// Says which subcommands there are, a line for each.
    pub fn help(&self) -> Vec<String> {
        let name = self.name.to_uppercase();
        let title = format!("{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:");
        let ways = self.usage.trim_matches(['[', ']']).split(BAR);
        [title].into_iter().chain(ways.map(str::to_owned)).collect()
    }

    /// What is wrong with the second word of a request, or with the number of those behind it.
    pub fn wrong_subcommand(&self, request: &Request) -> Option<String> {
        let given = request.get(1)?;
        if !self.has_subcommands {
            return None;
        }
        let shown = |word: &[u8]| String::from_utf8_lossy(&word[..word.len().min(128)]).into_owned();
        match self.asked_subcommand(request) {
            None if self.is(flag::OPEN) => None,
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
