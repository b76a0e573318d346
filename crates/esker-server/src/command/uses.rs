//! How commands use their keys: users' rights and `COMMAND GETKEYSANDFLAGS` go by it.

use crate::resp::Request;

/// The right to read a key.
pub const READ: u8 = 1;
/// The right to change a key.
pub const WRITE: u8 = 2;

/// What a command changes of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Update,
    Insert,
    Delete,
}

/// How a command uses a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyUse {
    /// It shows what the key holds.
    reads: bool,
    change: Option<Change>,
    /// It replaces or removes the key, whatever it held.
    is_whole: bool,
}

impl KeyUse {
    /// Shows no more than whether the key is there, how large it is, or whether something is in it.
    pub const LOOK: KeyUse = KeyUse { reads: false, change: None, is_whole: false };
    /// Shows what the key holds.
    pub const SHOW: KeyUse = KeyUse { reads: true, ..KeyUse::LOOK };
    /// Changes a part of the key.
    pub const UPDATE: KeyUse = KeyUse { change: Some(Change::Update), ..KeyUse::LOOK };
    /// Changes a part of the key, and shows what was in it.
    pub const SHOW_UPDATE: KeyUse = KeyUse { reads: true, ..KeyUse::UPDATE };
    /// Adds to the key, and changes nothing that is in it.
    pub const INSERT: KeyUse = KeyUse { change: Some(Change::Insert), ..KeyUse::LOOK };
    /// Removes something from the key.
    pub const DELETE: KeyUse = KeyUse { change: Some(Change::Delete), ..KeyUse::LOOK };
    /// Removes something from the key, and shows it.
    pub const TAKE: KeyUse = KeyUse { reads: true, ..KeyUse::DELETE };
    /// Replaces the key.
    pub const SET: KeyUse = KeyUse { is_whole: true, ..KeyUse::UPDATE };
    /// Makes a key that is not there.
    pub const MAKE: KeyUse = KeyUse { is_whole: true, ..KeyUse::INSERT };
    /// Removes the key.
    pub const REMOVE: KeyUse = KeyUse { is_whole: true, ..KeyUse::DELETE };

    /// The rights that it needs.
    pub fn rights(self) -> u8 {
        let right = |needs: bool, right: u8| if needs { right } else { 0 };
        right(self.reads, READ) | right(self.change.is_some(), WRITE)
    }

    /// Its names in `COMMAND GETKEYSANDFLAGS`.
    pub fn names(self) -> Vec<&'static str> {
        let form = match (self.change, self.is_whole) {
            (None, _) => "RO",
            (Some(Change::Delete), true) => "RM",
            (_, true) => "OW",
            _ => "RW",
        };
        let change = self.change.map(|change| match change {
            Change::Update => "update",
            Change::Insert => "insert",
            Change::Delete => "delete",
        });
        [Some(form), self.reads.then_some("access"), change].into_iter().flatten().collect()
    }
}

/// How a command uses each of its keys.
#[derive(Clone, Copy)]
pub enum Uses {
    /// All keys in the same way.
    All(KeyUse),
    /// The first key, and the others.
    First(KeyUse, KeyUse),
    /// All keys in a way that other words decide.
    Asked(fn(&Request) -> KeyUse),
}

impl Uses {
    /// Reads the first key, and stores to the second.
    pub const STORE_SECOND: Uses = Uses::First(KeyUse::SHOW, KeyUse::SET);
    /// Stores to the first key what is made of the others.
    pub const STORE_FIRST: Uses = Uses::First(KeyUse::SET, KeyUse::SHOW);
    /// Moves something from the first key to the second.
    pub const MOVE: Uses = Uses::First(KeyUse::TAKE, KeyUse::INSERT);

    /// How a request uses the key with this number among its keys.
    pub fn of(&self, request: &Request, at: usize) -> KeyUse {
        match self {
            Uses::All(each) => *each,
            Uses::First(first, others) => {
                if at == 0 {
                    *first
                } else {
                    *others
                }
            }
            Uses::Asked(ask) => ask(request),
        }
    }
}

fn has_word(request: &Request, from: usize, words: &[&str]) -> bool {
    (from..request.len()).any(|at| words.iter().any(|word| request.is(at, word)))
}

/// `SET` shows the old value if asked to.
pub fn of_set(request: &Request) -> KeyUse {
    if has_word(request, 3, &["get"]) { KeyUse::SHOW_UPDATE } else { KeyUse::SET }
}

/// `BITFIELD` changes nothing unless asked to.
pub fn of_bitfield(request: &Request) -> KeyUse {
    if has_word(request, 2, &["set", "incrby"]) { KeyUse::SHOW_UPDATE } else { KeyUse::SHOW }
}

/// A lock keeps others from what it names. A shared one does not keep them from reading.
pub fn of_lock(request: &Request) -> KeyUse {
    if has_word(request, 2, &["shared"]) { KeyUse::SHOW } else { KeyUse::UPDATE }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_use_has_the_names_that_redis_has_for_it() {
        let show = |used: KeyUse| format!("{} {}", used.names().join(" "), used.rights());
        assert_eq!(show(KeyUse::LOOK), "RO 0");
        assert_eq!(show(KeyUse::SHOW), "RO access 1");
        assert_eq!(show(KeyUse::TAKE), "RW access delete 3");
        assert_eq!(show(KeyUse::SET), "OW update 2");
        assert_eq!(show(KeyUse::REMOVE), "RM delete 2");
    }
}
