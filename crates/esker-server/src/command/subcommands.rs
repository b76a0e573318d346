//! Subcommands, which are parsed from the usage of a command: their names and numbers of words.
//!
//! ```text
//!   "get pattern ... | set name value ... | resetstat"
//!     -->   get: 3 words or more; set: 4 or more; resetstat: 2
//! ```

use super::flag;
use super::spec::Spec;
use crate::resp::Request;

/// The subcommand that every command with subcommands has.
pub const HELP: &str = "help";

/// Separator of the forms of a command with subcommands.
const BAR: &str = " | ";

/// Returns whether a usage has subcommands. Computed once per command, because every request needs it.
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

/// Number of words of a form, including the name of the command. Negative: the minimum number, negated.
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
    /// The forms of the command, one per subcommand. Each starts with the name of its subcommand.
    fn ways(&self) -> impl Iterator<Item = &'static str> {
        let usage = self.usage.strip_prefix('[').map_or(self.usage, |inner| inner.trim_end_matches(']'));
        let ways = self.has_subcommands.then(|| usage.split(BAR).chain([HELP]));
        ways.into_iter().flatten()
    }

    /// Names of the subcommands.
    pub fn subcommands(&self) -> impl Iterator<Item = &'static str> {
        self.ways().filter_map(|way| way.split(' ').next())
    }

    /// The subcommand of a request, if the command has subcommands.
    pub fn asked_subcommand(&self, request: &Request) -> Option<&'static str> {
        self.subcommands().find(|word| request.is(1, word))
    }

    /// Number of words of a subcommand, in the form of [`Spec::arity`].
    pub fn subcommand_arity(&self, sub: &str) -> i32 {
        self.ways().find(|way| way.split(' ').next() == Some(sub)).map_or(-2, arity_of)
    }

    /// Subcommands whose flags differ from those of the command, with their flags.
    pub fn with_own_flags(&self) -> impl Iterator<Item = (&'static str, u32)> {
        self.own_flags.iter().flat_map(|(words, flags)| words.iter().map(|word| (*word, *flags)))
    }

    /// The flags of a subcommand.
    pub fn subcommand_flags(&self, sub: &str) -> u32 {
        self.with_own_flags().find(|(word, _)| *word == sub).map_or(self.flags, |(_, flags)| flags)
    }

    /// The flags of the command or subcommand of a request.
    pub fn flags_of(&self, request: &Request) -> u32 {
        match self.own_flags {
            [] => self.flags,
            _ => self.asked_subcommand(request).map_or(self.flags, |sub| self.subcommand_flags(sub)),
        }
    }

    /// The full name of the command of a request, as in users' rights: `config|get`.
    pub fn full_name(&self, request: &Request) -> String {
        match self.asked_subcommand(request) {
            Some(word) if !self.is(flag::ONE_RIGHT) => format!("{}|{word}", self.name),
            _ => self.name.to_owned(),
        }
    }

    /// Returns whether a request asks for the list of subcommands.
    pub fn is_help(&self, request: &Request) -> bool {
        request.is(1, HELP) && self.asked_subcommand(request).is_some()
    }

    /// The list of subcommands, one line each.
    pub fn help(&self) -> Vec<String> {
        let name = self.name.to_uppercase();
        let title = format!("{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:");
        let ways = self.usage.trim_matches(['[', ']']).split(BAR);
        [title].into_iter().chain(ways.map(str::to_owned)).collect()
    }

    /// The error for an unknown subcommand or a wrong number of words, if there is one.
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
