//! What damage may cause: the states that a damaged database may show, and the errors that it may return.
//!
//! ```text
//!   files before, files after --> changed files --> the newest state only, or those of an exception
//! ```
//!
//! If the files cannot prove that more existed, the newest state cannot be required:
//!
//! allowed.1. The last segment of an unclosed log: damage after the last position proven durable looks like a
//!     torn write. The newest commits that do not end before the damage may be missing; none if an intact
//!     later record proves them (tail.rs), and none if the segment is missing, because the manifest names it.
//!     Similarly for a blob file: a value of a commit in the last segment looks torn if it may not be durable
//!     (recovery.9).
//! allowed.2. A manifest, or CURRENT: no other file tells where the manifest ends or which one is in force.
//!     One truncated after a record, an earlier one, or that of another database may be consistent with the
//!     files. Then the state is any that either database had, but none before a commit that a remaining file
//!     proves (proof.rs). Mostly the files do not match and opening is refused. It is always refused if a
//!     record after the damage proves it (manifest.rs), or if the manifest that CURRENT names is unreadable.
//!     Then a repair also shows the newest state or reports a loss.
//!
//! - A directory without CURRENT, tables and log segments is a new database.

use std::collections::BTreeSet;
use std::path::Path;

use esker::{DumpOptions, DumpValue, Error, KeyspaceId, Loss, LostKeys};

use super::files::{Files, Role, disk, env, last_segment, path};
use super::manifest::{describes_a_state, is_unmistakable};
use super::proof::newest_commit_left;
use super::subject::Subject;
use esker_world::model::state::State;
use esker_world::world::DIR;

/// The effect of damage on the files.
pub(super) struct Change {
    /// Changed, missing and new files.
    names: BTreeSet<String>,
    /// Files with unreadable sectors, which cannot cause another state.
    unreadable: BTreeSet<String>,
    /// Whether the directory looks like a new database.
    pub(super) is_new: bool,
    /// Whether the manifest in force was changed or replaced.
    manifest: bool,
    /// Whether the manifest in force may describe another state, or none (allowed.2).
    is_mistakable: bool,
    /// Whether it may describe an earlier state without contradiction.
    may_be_older: bool,
    /// If so: the newest commit that remaining files prove.
    proven: u64,
    /// The replacement of the log's last segment, if it changed; empty if only a file that looks prepared for
    /// it remains.
    tail: Option<Vec<u8>>,
}

impl Change {
    pub(super) fn between(before: &Files, after: &Files, unreadable: impl Iterator<Item = String>) -> Change {
        let is_other = |name: &&String| before.get(*name) != after.get(*name);
        let names: BTreeSet<String> = before.keys().chain(after.keys()).filter(is_other).cloned().collect();
        let holds_data = |name: &String| matches!(Role::of(name), Role::Table | Role::Segment);
        let now = |name: &str| after.get(name).cloned().unwrap_or_default();
        let may_be_tail =
            |name: &&str| after.contains_key(*name) || after.contains_key(&format!("{name}-next"));
        let tail = last_segment(before).filter(|name| names.contains(*name)).filter(may_be_tail);
        let manifest = in_force(before);
        let (current, described) = (names.contains("CURRENT"), names.contains(manifest));
        let is_mistakable = current || (described && !is_unmistakable(before, manifest, &now(manifest)));
        let may_be_older = is_mistakable && (current || describes_a_state(manifest, &now(manifest)));
        let unreadable: BTreeSet<String> = unreadable.collect();
        Change {
            is_new: !after.contains_key("CURRENT") && !after.keys().any(holds_data),
            manifest: current || described,
            is_mistakable,
            may_be_older,
            proven: if may_be_older { newest_commit_left(before, after, &unreadable) } else { 0 },
            tail: tail.map(now),
            names,
            unreadable,
        }
    }

    fn touches(&self, roles: &[Role]) -> bool {
        self.names.iter().any(|name| roles.contains(&Role::of(name)))
    }

    /// Returns whether tables or blob files are changed or unreadable.
    pub(super) fn touches_tables(&self) -> bool {
        let mut touched = self.names.union(&self.unreadable);
        touched.any(|name| matches!(Role::of(name), Role::Table | Role::Blob))
    }

    /// Returns whether unreadable sectors of tables and of the log explain a loss, with no other damage.
    /// `before` are the undamaged files.
    pub(super) fn costs(&self, loss: &Loss, before: &Files) -> bool {
        let roles: Vec<Role> = self.unreadable.iter().map(|name| Role::of(name)).collect();
        let nothing_else =
            self.names.is_empty() && roles.iter().all(|role| matches!(role, Role::Table | Role::Segment));
        let name = loss.path.strip_prefix(DIR).ok().and_then(Path::to_str).unwrap_or_default();
        if !nothing_else {
            return true;
        }
        match Role::of(name) {
            Role::Table => {
                self.unreadable.contains(name) && is_within(&loss.keys, &range_of_table(before, name))
            }
            // A gap is reported for the following segment.
            Role::Segment => roles.contains(&Role::Segment),
            // Names of keyspaces are entries of tables or of the log, too.
            _ => loss.keys == LostKeys::Names,
        }
    }

    /// Returns whether no file with data changed.
    pub(super) fn is_harmless(&self) -> bool {
        self.names.union(&self.unreadable).all(|name| Role::of(name) == Role::Other)
    }

    /// Returns the states that the opened database may show.
    pub(super) fn shown_states<'a>(
        &self,
        subject: &'a Subject,
        donor: Option<&'a Subject>,
    ) -> Vec<&'a State> {
        if self.is_new {
            subject.chronicle.iter().take(1).collect()
        } else if self.is_mistakable {
            [self.states(subject), self.foreign_states(donor, false)].concat()
        } else {
            self.states_of_log(subject)
        }
    }

    /// Returns the own states that a repair may use, newest first. If the repair reports a loss of arbitrary
    /// keys (`tells`), it may have used a damaged manifest or another one.
    pub(super) fn repaired_states<'a>(&self, subject: &'a Subject, tells: bool) -> Vec<&'a State> {
        match tells && self.manifest {
            true => std::iter::once(&subject.newest).chain(subject.chronicle.iter().rev()).collect(),
            false => self.states(subject),
        }
    }

    /// Returns the own states that may be shown without a reported loss, newest first: the newest one and the
    /// exceptions.
    fn states<'a>(&self, subject: &'a Subject) -> Vec<&'a State> {
        let mut states = self.states_of_log(subject);
        if self.may_be_older {
            // Log records after the newest commit never counted.
            let proven = self.proven.min(subject.shown_until(&subject.newest));
            let older = subject.chronicle.iter().rev();
            states.extend(older.filter(|state| subject.shown_until(state) >= proven));
        }
        states
    }

    /// Returns the states at which the log may end (allowed.1), newest first.
    fn states_of_log<'a>(&self, subject: &'a Subject) -> Vec<&'a State> {
        let tail = self.tail.as_ref().filter(|_| !subject.closed);
        let at_stake = tail.map_or(0, |now| subject.tail.commits_at_stake(now));
        let is_blob_touched = self.touches(&[Role::Blob]) && !subject.closed;
        let at_stake = if is_blob_touched { subject.tail.commits() } else { at_stake };
        if at_stake == 0 {
            return vec![&subject.newest];
        }
        // A state may recur: the files may end at any point at which it was the newest.
        let newest = subject.newest.digest();
        let end = subject.recent.iter().rposition(|state| state.digest() == newest).unwrap_or(0);
        let most = subject.tail.commits();
        let back = most.min(end + at_stake);
        // The state found by the last opening may be in the same segment.
        let earlier = subject.chronicle.iter().rev().take(most + 1);
        let earlier = earlier.filter(|_| subject.recent.len() <= back);
        subject.recent.iter().take(back + 1).chain(earlier).collect()
    }

    /// Returns the states of another database that the files may represent. `tells` as above.
    pub(super) fn foreign_states<'a>(&self, donor: Option<&'a Subject>, tells: bool) -> Vec<&'a State> {
        let donor = donor.filter(|_| self.may_be_older || (tells && self.manifest));
        donor.into_iter().flat_map(|donor| &donor.chronicle).collect()
    }

    /// Returns whether the error is typed and names a damaged file or one affected by it: a manifest names
    /// missing or changed tables and segments; a segment tells which others are finished.
    pub(super) fn explains(&self, error: &Error) -> bool {
        if let Error::Io { path, source, .. } = error {
            let name = path.strip_prefix(DIR).ok().and_then(Path::to_str);
            let is_unreadable = name.is_some_and(|name| self.unreadable.contains(name));
            return is_unreadable && source.to_string().contains(" fault (");
        }
        let (Error::Corrupt { path, .. } | Error::UnsupportedVersion { path, .. }) = error else {
            return false;
        };
        let Some(name) = path.strip_prefix(DIR).ok().and_then(Path::to_str) else { return false };
        match Role::of(name) {
            Role::Table | Role::Blob => self.names.contains(name) || self.is_mistakable,
            Role::Segment | Role::Prepared => {
                self.touches(&[Role::Segment, Role::Prepared]) || self.is_mistakable
            }
            Role::Manifest | Role::Current => self.manifest,
            Role::Other => false,
        }
    }
}

/// A keyspace id and a key.
type KeyPosition = (u32, Vec<u8>);

/// Returns whether the keys lie in this range.
fn is_within(keys: &LostKeys, (first, last): &(KeyPosition, KeyPosition)) -> bool {
    let place = |(id, key): &(KeyspaceId, Vec<u8>)| (id.get(), key.clone());
    match keys {
        LostKeys::Between(Some(low), Some(high)) => *first <= place(low) && place(high) <= *last,
        _ => false,
    }
}

/// Returns the first and the last key of an undamaged table, according to a dump.
fn range_of_table(files: &Files, name: &str) -> (KeyPosition, KeyPosition) {
    let one = Files::from([(name.to_owned(), files[name].clone())]);
    let mut ends = Vec::new();
    let options = DumpOptions::default().env(env(&disk(&one), 0)).entries(false);
    let shown = options.dump(path(name), |item| {
        for (field, value) in &item.fields {
            if let ("properties", "first" | "last", DumpValue::Bytes(key)) = (item.kind, *field, value) {
                ends.push(place(key));
            }
        }
    });
    match (shown, <[KeyPosition; 2]>::try_from(ends)) {
        (Ok(()), Ok([first, last])) => (first, last),
        other => panic!("subject.1: dump of the undamaged table {name}: {other:?}"),
    }
}

/// Decodes the keyspace id at the start of an encoded key: one byte, or from 0xF0 on a byte with the length
/// of the id that follows.
fn place(encoded: &[u8]) -> KeyPosition {
    let (first, rest) = encoded.split_first().expect("a key begins with the number of its keyspace");
    let (id, key) = match first.checked_sub(0xF0) {
        None => (u32::from(*first), rest),
        Some(width) => {
            let (id, key) = rest.split_at(usize::from(width));
            (id.iter().fold(0, |id, byte| id << 8 | u32::from(*byte)), key)
        }
    };
    (id, key.to_vec())
}

/// Returns the manifest that CURRENT names.
fn in_force(files: &Files) -> &str {
    let current = files.get("CURRENT").and_then(|text| std::str::from_utf8(text).ok()).unwrap_or_default();
    current.split(' ').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use esker::Db;
    use esker::recordio::Reader;
    use esker_env::MemFs;

    use super::super::files::read;
    use super::super::subject::Plan;
    use super::*;

    fn files(list: &[(&str, &str)]) -> Files {
        list.iter().map(|(name, text)| ((*name).to_owned(), (*text).into())).collect()
    }

    const BEFORE: [(&str, &str); 5] =
        [("000003.sst", "t"), ("000001.wal", "1"), ("000002.wal", "2"), ("CURRENT", "c"), ("LOCK", "l")];

    /// Returns the change when these files are changed or new.
    fn change(others: &[&str]) -> Change {
        let mut after = files(&BEFORE);
        after.extend(others.iter().map(|name| ((*name).to_owned(), b"?".to_vec())));
        Change::between(&files(&BEFORE), &after, std::iter::empty())
    }

    #[test]
    fn errors_are_explained_by_what_is_another_or_has_led_there() {
        let error = |name: &str| Error::corrupt("x", path(name), 0, "damaged");
        let explained = |others: &[&str], name: &str| change(others).explains(&error(name));
        assert!(explained(&["000003.sst"], "000003.sst") && !explained(&["000003.sst"], "000004.sst"));
        assert!(!explained(&["000003.sst"], "000001.wal") && explained(&["000002.wal"], "000001.wal"));
        assert!(explained(&["CURRENT"], "000004.sst") && !explained(&["LOCK"], "LOCK"));
        assert!(!change(&["CURRENT"]).explains(&Error::Closed));
        assert!(!change(&["CURRENT"]).explains(&Error::corrupt("x", "elsewhere/000003.sst", 0, "damaged")));
    }

    #[test]
    fn allowed_1_a_last_segment_that_is_gone_costs_no_commit() {
        let before = files(&BEFORE);
        let tail = |others: &[(&str, &str)]| {
            let mut after = before.clone();
            after.remove("000002.wal");
            after.extend(files(others));
            Change::between(&before, &after, std::iter::empty()).tail
        };
        assert_eq!(tail(&[]), None, "allowed.1");
        assert_eq!(tail(&[("000002.wal", "2")]), None, "as it was");
        assert_eq!(tail(&[("000002.wal", "?")]), Some(b"?".to_vec()), "allowed.1");
        assert_eq!(tail(&[("000002.wal-next", "?")]), Some(Vec::new()), "allowed.1");
    }

    #[test]
    fn allowed_2_a_manifest_that_proves_its_damage_describes_no_other_state() {
        let made = MemFs::new();
        let db = Db::builder().env(env(&made, 1)).background(false).memory(1 << 20).open(DIR).unwrap();
        db.default_keyspace().put("a", "b").unwrap();
        db.flush().unwrap();
        db.close().unwrap();
        let before = read(&made);
        let name = in_force(&before);
        let mut reader = Reader::options().env(&env(&made, 1)).open(path(name)).unwrap();
        let mut places = Vec::new();
        while reader.next().unwrap().is_some() {
            places.push(reader.record_offset() as usize);
        }
        let (bytes, end) = (&before[name], reader.position() as usize);
        let last = *places.last().unwrap();
        assert!(places.len() > 3 && last < end, "{places:?}, {end}");
        let change = |now: Vec<u8>| {
            let mut after = before.clone();
            after.insert(name.to_owned(), now);
            Change::between(&before, &after, std::iter::empty())
        };
        let table = Error::corrupt("x", path("999999.sst"), 0, "damaged");
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1;
            let flipped = change(flipped);
            assert_eq!(flipped.is_mistakable, (last..end).contains(&at), "allowed.2: byte {at}");
            assert_eq!(flipped.explains(&table), flipped.is_mistakable, "allowed.2: byte {at}");
            assert_eq!(change(bytes[..at].to_vec()).is_mistakable, at < end, "allowed.2: cut to {at}");
        }
    }

    #[test]
    fn allowed_2_no_state_from_before_a_commit_that_is_proven_is_shown() {
        let subject = Plan::of(3, 80).subject(&AtomicU64::new(0));
        let newest = subject.shown_until(&subject.newest);
        let states = |may_be_older: bool, proven: u64| {
            let change = Change { may_be_older, proven, ..change(&["CURRENT"]) };
            let until = |state: &State| subject.shown_until(state);
            change.states(&subject).into_iter().map(until).collect::<Vec<u64>>()
        };
        assert_eq!(states(false, 0), [newest], "allowed.2: it is known that it is damaged");
        let all = states(true, 0);
        assert_eq!(all.len(), 1 + subject.chronicle.len());
        assert!(all.iter().any(|until| *until < newest), "{all:?}");
        for proven in [1, newest / 2, newest] {
            let left = states(true, proven);
            assert!(
                left.len() > 1 && left.iter().all(|until| *until >= proven),
                "allowed.2: {proven}: {left:?}"
            );
        }
        assert_eq!(states(true, newest + 1), states(true, newest), "allowed.2: it never counted");
    }

    #[test]
    fn keys_of_a_table_are_within_its_range() {
        let at = |id, key: &str| Some((KeyspaceId::new(id), key.as_bytes().to_vec()));
        let range = (place(b"\x01d"), place(b"\x02m"));
        let within = |low, high| is_within(&LostKeys::Between(low, high), &range);
        assert!(within(at(1, "d"), at(2, "m")) && within(at(1, "z"), at(2, "")));
        assert!(!within(at(1, "c"), at(2, "m")) && !within(at(1, "d"), at(2, "ma")));
        assert!(!within(None, at(2, "m")) && !within(at(1, "d"), None));
        let range = (place(b"\x01d"), place(b"\xf1\xf0m"));
        let within = |low, high| is_within(&LostKeys::Between(low, high), &range);
        assert!(within(at(239, "z"), at(240, "m")) && !within(at(1, "d"), at(240, "ma")));
        assert_eq!(place(b"\xf2\x01\x02k"), (258, b"k".to_vec()));
        assert!(!is_within(&LostKeys::Any, &range) && !is_within(&LostKeys::Names, &range));
    }

    #[test]
    fn a_directory_without_anything_of_a_database_is_a_new_one() {
        let left = |names: &[&str]| {
            let mut after = files(&BEFORE);
            after.retain(|name, _| names.contains(&name.as_str()));
            Change::between(&files(&BEFORE), &after, std::iter::empty()).is_new
        };
        assert!(left(&["LOCK"]) && left(&[]));
        assert!(!left(&["CURRENT"]) && !left(&["000002.wal"]) && !left(&["000003.sst"]));
    }

    #[test]
    fn only_files_without_data_are_harmless() {
        assert!(change(&[]).is_harmless() && change(&["LOCK", "OPTIONS"]).is_harmless());
        for name in ["000003.sst", "000009.wal-next", "CURRENT", "MANIFEST-000001"] {
            assert!(!change(&["LOCK", name]).is_harmless(), "{name}");
        }
    }
}
