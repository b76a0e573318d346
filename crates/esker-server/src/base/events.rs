//! Classes of events of keys, and their letters in the option `notify-keyspace-events`.

/// A class of key events. See the option `notify-keyspace-events`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Commands that work on any type.
    Generic,
    /// Strings.
    String,
    /// Lists.
    List,
    /// Sets.
    Set,
    /// Hashes.
    Hash,
    /// Sorted sets.
    SortedSet,
    /// Streams.
    Stream,
    /// Keys that expired.
    Expired,
    /// New keys.
    New,
}

/// Letters of the classes, in their order, then of the two kinds of channels, then of events that this server
/// never has: evictions, modules, misses.
const LETTERS: &[u8] = b"g$lshztxnKEedm";
/// Order in which letters are shown.
const SHOWN: &[u8] = b"g$lshzxetdKEmn";
/// The bit of the channel of each key.
pub const KEYSPACE: u32 = 1 << 9;
/// The bit of the channel of each event.
pub const KEYEVENT: u32 = 1 << 10;
/// Classes that the letter `A` stands for: all except misses and new keys.
const ALL: u32 = 0xFF | 1 << 11 | 1 << 12;

/// Returns the classes that `letters` name, or `None` if a letter is unknown.
pub fn events_of(letters: &[u8]) -> Option<u32> {
    letters.iter().try_fold(0, |events, letter| match letter {
        b'A' => Some(events | ALL),
        letter => LETTERS.iter().position(|known| known == letter).map(|at| events | 1 << at),
    })
}

/// Returns the letters of `events`.
pub fn letters_of(events: u32) -> String {
    let mut letters = String::new();
    let mut rest = events;
    if events & ALL == ALL {
        letters.push('A');
        rest &= !ALL;
    }
    let is_in =
        |letter: &u8| LETTERS.iter().position(|known| known == letter).is_some_and(|at| rest >> at & 1 == 1);
    letters.extend(SHOWN.iter().filter(|letter| is_in(letter)).map(|letter| char::from(*letter)));
    letters
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_name_classes() {
        assert_eq!(letters_of(events_of(b"KEA").unwrap()), "AKE");
        assert_eq!(letters_of(events_of(b"Klx").unwrap()), "lxK");
        assert_eq!(events_of(b"Kq"), None);
    }
}
