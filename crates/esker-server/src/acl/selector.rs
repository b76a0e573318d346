//! Selectors: rules for commands, keys and channels. The last rule that matches a command decides.

use std::collections::BTreeMap;

use crate::base::glob;
use crate::command::spec::{CATEGORIES, Spec, Specs};
use crate::command::uses::{READ, WRITE};
use crate::resp::Request;

const UNKNOWN: &str = "Unknown command or category name in ACL";
const SYNTAX: &str = "Syntax error";

/// A pattern of keys, and how they may be used.
#[derive(Clone, Debug, PartialEq, Eq)]
struct KeyPattern {
    pattern: Vec<u8>,
    uses: u8,
}

/// A set of rules. A request needs one selector that allows all of it.
#[derive(Clone, Debug)]
pub struct Selector {
    /// Specifications of all commands.
    pub(super) specs: Specs,
    /// Whether each command is allowed, by its index in the table.
    allowed: Vec<bool>,
    /// Subcommands that differ from their command.
    subcommands: BTreeMap<(usize, String), bool>,
    /// The rules for commands, as text.
    rules: Vec<String>,
    keys: Vec<KeyPattern>,
    channels: Vec<Vec<u8>>,
}

impl Selector {
    /// Creates a selector that allows nothing.
    pub fn new(specs: Specs) -> Self {
        Selector {
            specs,
            allowed: vec![false; specs.len()],
            subcommands: BTreeMap::new(),
            rules: vec!["-@all".to_owned()],
            keys: Vec::new(),
            channels: Vec::new(),
        }
    }

    /// Applies a rule.
    ///
    /// # Errors
    /// If the rule is invalid.
    pub fn apply(&mut self, rule: &[u8]) -> Result<(), &'static str> {
        match rule.to_ascii_lowercase().as_slice() {
            b"allkeys" => return self.add_key(b"*", READ | WRITE),
            b"resetkeys" => self.keys.clear(),
            b"allchannels" => return self.add_channel(b"*"),
            b"resetchannels" => self.channels.clear(),
            b"allcommands" => self.set_all(true),
            b"nocommands" => self.set_all(false),
            _ => match rule.split_first() {
                Some((b'~', pattern)) => return self.add_key(pattern, READ | WRITE),
                Some((b'%', rest)) => return self.add_limited_key(rest),
                Some((b'&', pattern)) => return self.add_channel(pattern),
                Some((b'+', name)) => return self.add_command(name, true),
                Some((b'-', name)) => return self.add_command(name, false),
                _ => return Err(SYNTAX),
            },
        }
        Ok(())
    }

    fn add_key(&mut self, pattern: &[u8], uses: u8) -> Result<(), &'static str> {
        let new = KeyPattern { pattern: checked(pattern)?, uses };
        let all = KeyPattern { pattern: b"*".to_vec(), uses: READ | WRITE };
        if self.keys.contains(&all) && new != all {
            return Err(
                "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any effect. \
                 Try 'resetkeys' to start with an empty list of patterns",
            );
        }
        if new == all {
            self.keys.clear();
        }
        if !self.keys.contains(&new) {
            self.keys.push(new);
        }
        Ok(())
    }

    /// Applies a rule that starts with `%`: `R`, `W` or both, then `~` and a pattern.
    fn add_limited_key(&mut self, rest: &[u8]) -> Result<(), &'static str> {
        let tilde = rest.iter().position(|byte| *byte == b'~').ok_or(SYNTAX)?;
        let uses = rest[..tilde].iter().try_fold(0, |uses, letter| match letter {
            b'R' | b'r' => Some(uses | READ),
            b'W' | b'w' => Some(uses | WRITE),
            _ => None,
        });
        let uses = uses.filter(|uses| *uses != 0).ok_or(SYNTAX)?;
        self.add_key(&rest[tilde + 1..], uses)
    }

    fn add_channel(&mut self, pattern: &[u8]) -> Result<(), &'static str> {
        let pattern = checked(pattern)?;
        if self.has_all_channels() && pattern != b"*" {
            return Err(
                "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any effect. \
                 Try 'resetchannels' to start with an empty list of channels",
            );
        }
        if pattern == b"*" {
            self.channels.clear();
        }
        if !self.channels.contains(&pattern) {
            self.channels.push(pattern);
        }
        Ok(())
    }

    fn set_all(&mut self, is_allowed: bool) {
        self.allowed.fill(is_allowed);
        self.subcommands.clear();
        self.rules = vec![if is_allowed { "+@all" } else { "-@all" }.to_owned()];
    }

    fn add_command(&mut self, name: &[u8], is_allowed: bool) -> Result<(), &'static str> {
        let name = String::from_utf8_lossy(name).to_lowercase();
        if name == "@all" {
            self.set_all(is_allowed);
            return Ok(());
        }
        if name.starts_with('@') {
            self.add_category(&name, is_allowed)?;
        } else {
            let (command, word) = name.split_once('|').map_or((name.as_str(), None), |(a, b)| (a, Some(b)));
            let found = self.specs.iter().enumerate().find(|(_, known)| known.name == command);
            let (at, command) = found.ok_or(UNKNOWN)?;
            match word {
                None => {
                    self.allowed[at] = is_allowed;
                    self.forget_subcommands(at);
                    let of_it = format!("{name}|");
                    self.rules.retain(|rule| !rule[1..].starts_with(&of_it));
                }
                Some(word) if command.subcommands().any(|known| known == word) => {
                    self.subcommands.insert((at, word.to_owned()), is_allowed);
                }
                Some(_) => return Err(UNKNOWN),
            }
        }
        self.rules.retain(|rule| rule[1..] != name);
        self.rules.push(format!("{}{name}", if is_allowed { '+' } else { '-' }));
        Ok(())
    }

    fn add_category(&mut self, name: &str, is_allowed: bool) -> Result<(), &'static str> {
        if !CATEGORIES.contains(&&name[1..]) {
            return Err(UNKNOWN);
        }
        let is_in = |categories: Vec<String>| categories.iter().any(|category| category == name);
        for (at, command) in self.specs.iter().enumerate() {
            let own: Vec<_> = command
                .with_own_flags()
                .map(|(word, flags)| {
                    let is_meant = is_in(command.categories_with(flags));
                    (word, if is_meant { is_allowed } else { self.allows(at, Some(word)) })
                })
                .collect();
            if is_in(command.categories_with(command.flags)) {
                self.allowed[at] = is_allowed;
                self.forget_subcommands(at);
            }
            for (word, has) in own {
                self.subcommands.insert((at, word.to_owned()), has);
            }
        }
        Ok(())
    }

    fn forget_subcommands(&mut self, at: usize) {
        self.subcommands.retain(|(command, _), _| *command != at);
    }

    fn allows(&self, at: usize, word: Option<&str>) -> bool {
        let otherwise = word.and_then(|word| self.subcommands.get(&(at, word.to_owned())));
        otherwise.copied().unwrap_or_else(|| self.allowed.get(at).copied().unwrap_or(false))
    }

    /// Returns whether a command may run, regardless of its keys.
    pub fn allows_command(&self, at: usize, command: &Spec, request: &Request) -> bool {
        let word = if self.subcommands.is_empty() { None } else { command.asked_subcommand(request) };
        self.allows(at, word)
    }

    /// Returns whether a key may be used in these ways.
    pub fn allows_key(&self, key: &[u8], uses: u8) -> bool {
        self.keys.iter().any(|known| known.uses & uses == uses && glob::matches(&known.pattern, key))
    }

    /// Returns whether all keys may be used in these ways.
    pub fn allows_all_keys(&self, uses: u8) -> bool {
        self.keys.iter().any(|known| known.uses & uses == uses && known.pattern == b"*")
    }

    /// Returns whether all keys with this prefix may be used in these ways.
    pub fn allows_keys_with(&self, prefix: &[u8], uses: u8) -> bool {
        self.keys.iter().any(|known| known.uses & uses == uses && glob::covers(&known.pattern, prefix))
    }

    /// Returns whether all channels with this prefix may be used.
    pub fn allows_channels_with(&self, prefix: &[u8]) -> bool {
        self.channels.iter().any(|known| glob::covers(known, prefix))
    }

    /// Returns whether a channel may be used. A pattern (`is_pattern`) must equal a pattern of the selector.
    pub fn allows_channel(&self, channel: &[u8], is_pattern: bool) -> bool {
        self.channels.iter().any(|known| match is_pattern {
            true => known == b"*" || known == channel,
            false => glob::matches(known, channel),
        })
    }

    fn has_all_channels(&self) -> bool {
        self.channels.iter().any(|known| known == b"*")
    }

    /// Returns whether everything is allowed.
    pub fn is_unlimited(&self) -> bool {
        let all_commands =
            self.subcommands.values().all(|allowed| *allowed) && !self.allowed.contains(&false);
        all_commands && self.allows_all_keys(READ | WRITE) && self.has_all_channels()
    }

    /// The rules for commands, keys and channels.
    pub fn describe(&self) -> [String; 3] {
        let keys = self.keys.iter().map(|key| {
            let uses = match key.uses {
                READ => "%R",
                WRITE => "%W",
                _ => "",
            };
            format!("{uses}~{}", String::from_utf8_lossy(&key.pattern))
        });
        let channels = self.channels.iter().map(|channel| format!("&{}", String::from_utf8_lossy(channel)));
        [self.rules.join(" "), keys.collect::<Vec<_>>().join(" "), channels.collect::<Vec<_>>().join(" ")]
    }

    /// All rules as text. `apply` on each of them rebuilds the selector.
    pub fn rules(&self) -> String {
        let [commands, keys, channels] = self.describe();
        let channels = if self.has_all_channels() { channels } else { format!("resetchannels {channels}") };
        let parts = [keys.as_str(), channels.trim_end(), commands.as_str()];
        parts.iter().filter(|part| !part.is_empty()).copied().collect::<Vec<_>>().join(" ")
    }
}

/// Rejects a pattern that a file of users cannot hold.
fn checked(pattern: &[u8]) -> Result<Vec<u8>, &'static str> {
    match std::str::from_utf8(pattern)
        .is_ok_and(|text| !text.contains(|c: char| c.is_whitespace() || c == '\0'))
    {
        true => Ok(pattern.to_vec()),
        false => Err(SYNTAX),
    }
}
