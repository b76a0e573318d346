//! How commands use their keys. Users' rights and `COMMAND GETKEYSANDFLAGS` depend on it.

use crate::resp::Request;

/// The right to read a key.
pub const READ: u8 = 1;
/// The right to change a key.
pub const WRITE: u8 = 2;

/// How a command changes a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Update,
    Insert,
    Delete,
}

/// How a command uses a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyUse {
    /// Whether it shows the data of the key.
    reads: bool,
    change: Option<Change>,
    /// Whether it replaces or removes the whole key.
    is_whole: bool,
}

impl KeyUse {
    /// Shows only whether the key exists, its size, or whether it contains an element.
    pub const LOOK: KeyUse = KeyUse { reads: false, change: None, is_whole: false };
    /// Shows the data of the key.
    pub const SHOW: KeyUse = KeyUse { reads: true, ..KeyUse::LOOK };
    /// Changes a part of the key.
    pub const UPDATE: KeyUse = KeyUse { change: Some(Change::Update), ..KeyUse::LOOK };
    /// Changes a part of the key, and shows the old data.
    pub const SHOW_UPDATE: KeyUse = KeyUse { reads: true, ..KeyUse::UPDATE };
    /// Adds to the key without changing its existing data.
    pub const INSERT: KeyUse = KeyUse { change: Some(Change::Insert), ..KeyUse::LOOK };
    /// Removes data from the key.
    pub const DELETE: KeyUse = KeyUse { change: Some(Change::Delete), ..KeyUse::LOOK };
    /// Removes data from the key, and shows it.
    pub const TAKE: KeyUse = KeyUse { reads: true, ..KeyUse::DELETE };
    /// Replaces the key.
    pub const SET: KeyUse = KeyUse { is_whole: true, ..KeyUse::UPDATE };
    /// Creates a key that does not exist.
    pub const MAKE: KeyUse = KeyUse { is_whole: true, ..KeyUse::INSERT };
    /// Removes the key.
    pub const REMOVE: KeyUse = KeyUse { is_whole: true, ..KeyUse::DELETE };

    /// Returns whether the command writes the key.
    fn is_written(self) -> bool {
        self.change.is_some()
    }

    /// The required rights.
    pub fn rights(self) -> u8 {
        let right = |needs: bool, right: u8| if needs { right } else { 0 };
        right(self.reads, READ) | right(self.is_written(), WRITE)
    }

    /// The names in `COMMAND GETKEYSANDFLAGS`.
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
    /// All keys in a way that depends on the request.
    Asked(fn(&Request) -> KeyUse),
}

impl Uses {
    /// Reads the first key, and stores to the second.
    pub const STORE_SECOND: Uses = Uses::First(KeyUse::SHOW, KeyUse::SET);
    /// Stores a combination of the other keys to the first.
    pub const STORE_FIRST: Uses = Uses::First(KeyUse::SET, KeyUse::SHOW);
    /// Moves data from the first key to the second.
    pub const MOVE: Uses = Uses::First(KeyUse::TAKE, KeyUse::INSERT);

    /// Returns whether a command writes some of its keys and only reads others.
    pub fn is_mixed(&self) -> bool {
        matches!(self, Uses::First(first, others) if first.is_written() != others.is_written())
    }

    /// How a request uses its key with this index.
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

/// Conditions on the value of a string, which show something of it.
const CONDITIONS: &[&str] = &["ifeq", "ifne", "ifdeq", "ifdne"];

/// `SET` shows the old value on request, and whether it has some value if that is a condition.
pub fn of_set(request: &Request) -> KeyUse {
    if has_word(request, 3, &["get"]) || has_word(request, 3, CONDITIONS) {
        KeyUse::SHOW_UPDATE
    } else {
        KeyUse::SET
    }
}

/// `DELEX` shows whether the key has some value if that is a condition.
pub fn of_delex(request: &Request) -> KeyUse {
    if request.len() > 2 { KeyUse::TAKE } else { KeyUse::REMOVE }
}

/// `BITFIELD` changes data only if it has a step that does.
pub fn of_bitfield(request: &Request) -> KeyUse {
    if has_word(request, 2, &["set", "incrby"]) { KeyUse::SHOW_UPDATE } else { KeyUse::SHOW }
}

/// A lock keeps other clients from using a key. A shared lock does not keep them from reading it.
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
