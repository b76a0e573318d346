//! The commands of a server: specifications, functions and counters.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Deref;

use crate::command::keys::Keys;
use crate::command::reach::Reaches;
use crate::command::spec::{Awaits, Credentials, Group, Spec, Specs};
use crate::command::uses::{KeyUse, Uses};
use crate::observe::stats::CommandStats;
use crate::resp::Request;
use crate::resp::fail::Done;
use crate::run::cx::Cx;
use crate::run::memory::MemoryLimits;

/// The imports that a command table needs.
pub mod row {
    pub use super::{Command, command};
    pub use crate::command::flag::*;
    pub use crate::command::keys::*;
    pub use crate::command::spec::Awaits;
    pub use crate::command::uses::{self, KeyUse, Uses};
    pub use crate::command::{reach, secrets};
}

/// The function that executes a command.
pub type Run = fn(&mut Cx<'_>, &Request) -> Done;

/// A command: its specification and its function.
pub struct Command {
    spec: Spec,
    /// The function that executes it.
    pub run: Run,
}

impl Deref for Command {
    type Target = Spec;

    fn deref(&self) -> &Spec {
        &self.spec
    }
}

/// Defines a command, as a row of a command table.
#[expect(clippy::too_many_arguments, reason = "a line of a table")]
pub const fn command(
    name: &'static str,
    arity: i32,
    flags: u32,
    keys: Keys,
    group: Group,
    usage: &'static str,
    summary: &'static str,
    run: Run,
) -> Command {
    Command { spec: Spec::new((name, arity, flags), keys, group, (usage, summary)), run }
}

impl Command {
    /// Sets how it uses its keys, if the flags do not say it.
    pub const fn uses(mut self, uses: Uses) -> Self {
        self.spec.uses = uses;
        self
    }

    /// Sets that it uses each of its keys in this way.
    pub const fn each(self, used: KeyUse) -> Self {
        self.uses(Uses::All(used))
    }

    /// Sets what it accesses beside its keys.
    pub const fn reaches(mut self, reaches: Reaches) -> Self {
        self.spec.reaches = Some(reaches);
        self
    }

    /// Sets its categories, in place of the category of its group.
    pub const fn in_categories(mut self, categories: &'static [&'static str]) -> Self {
        self.spec.categories = Some(categories);
        self
    }

    /// Sets the flags of subcommands that differ from those of the command.
    pub const fn own_flags(mut self, flags: &'static [(&'static [&'static str], u32)]) -> Self {
        self.spec.own_flags = flags;
        self
    }

    /// Sets the function that finds the passwords among the arguments.
    pub const fn hides(mut self, secrets: fn(&Request) -> Vec<usize>) -> Self {
        self.spec.secrets = Some(secrets);
        self
    }

    /// Sets the credentials that it logs in with.
    pub const fn logs_in(mut self, credentials: Credentials) -> Self {
        self.spec.credentials = Some(credentials);
        self
    }

    /// Sets what it waits for.
    pub const fn awaits(mut self, awaits: Awaits) -> Self {
        self.spec.awaits = Some(awaits);
        self
    }
}

/// Maximum length of a command name, in bytes.
const NAME_BYTES_MAX: usize = 32;

/// Hashes names of commands. It is fast, and need not resist chosen names: only known names are in the map.
#[derive(Default)]
struct NameHasher(u64);

impl Hasher for NameHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    fn write_usize(&mut self, n: usize) {
        self.0 ^= n as u64;
    }

    fn finish(&self) -> u64 {
        // The map takes both ends of the hash.
        self.0 ^ self.0.rotate_left(32)
    }
}

/// All commands by name, with their counters.
pub struct Commands {
    table: Vec<&'static Command>,
    /// Indexes in the table.
    by_name: HashMap<&'static [u8], usize, BuildHasherDefault<NameHasher>>,
    specs: Specs,
    stats: Vec<CommandStats>,
    /// Limits on the memory that commands use.
    pub memory: MemoryLimits,
}

impl Commands {
    /// Creates the registry of a table.
    pub fn new(table: impl Iterator<Item = &'static Command>, specs: Specs) -> Self {
        let table: Vec<_> = table.collect();
        let by_name = table.iter().enumerate().map(|(at, command)| (command.name.as_bytes(), at)).collect();
        let stats = table.iter().map(|_| CommandStats::default()).collect();
        Commands { table, by_name, specs, stats, memory: MemoryLimits::default() }
    }

    /// Returns the command of a name and its index in the table. Case does not matter.
    pub fn entry(&self, name: &[u8]) -> Option<(&'static Command, usize)> {
        let mut lower = [0; NAME_BYTES_MAX];
        let lower = lower.get_mut(..name.len())?;
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        let at = *self.by_name.get(&*lower)?;
        Some((self.table[at], at))
    }

    /// Looks up the command of a request, and notes it in the request for later.
    pub fn note_command(&self, request: &mut Request) -> Option<&'static Command> {
        let (command, at) = self.entry(&request[0])?;
        request.command = u16::try_from(at).ok();
        Some(command)
    }

    /// Returns the command of a request and its index in the table.
    #[inline]
    pub fn entry_of(&self, request: &Request) -> Option<(&'static Command, usize)> {
        match request.command.map(usize::from) {
            Some(at) => Some((self.table[at], at)),
            None => self.entry(&request[0]),
        }
    }

    /// Returns the command of a name. Case does not matter.
    pub fn find(&self, name: &[u8]) -> Option<&'static Command> {
        self.entry(name).map(|entry| entry.0)
    }

    /// Returns whether the command of a request has one of these flags.
    pub fn has_flag(&self, request: &Request, flags: u32) -> bool {
        self.entry_of(request).is_some_and(|(command, _)| command.is(flags))
    }

    /// Returns the number of commands.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns the counters of the command at an index of the table.
    pub fn stats_at(&self, at: usize) -> &CommandStats {
        &self.stats[at]
    }

    /// Returns the counters of each command, by name.
    pub fn stats(&self) -> impl Iterator<Item = (&'static str, &CommandStats)> {
        self.specs.iter().map(|spec| spec.name).zip(&self.stats)
    }

    /// Returns all specifications, in the order of the table.
    pub fn specs(&self) -> Specs {
        self.specs
    }
}
