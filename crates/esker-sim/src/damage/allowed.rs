//! What harms may cost: which states a damaged database may show, and which errors it may give.
//!
//! ```text
//!   files before, files after --> which are others --> the newest state alone, or those of an exception
//! ```
//!
//! Where the files do not say that more was there, the newest state cannot be asked for:
//!
//! allowed.1. The last segment of a log that was not closed: what follows the last place that something behind it proves to be
//!      durable looks like a write that a crash tore. Its commits that do not end before the damage may be missing, newest first;
//!      none if something behind it that is whole still proves it (tail.rs), and none if the segment is gone: the manifest names it.
//!      The same of a file of values: a value that a commit of the last segment points to looks torn, if that may not be durable (recovery.9).
//! allowed.2. A manifest, or CURRENT: no other file says where the manifest ends or which one is in force. One that was cut
//!      behind a record, or is an earlier one or another database's, may describe what is there. Then the state is one that
//!      the database had, or the other one had; but none from before a commit that a file which is left proves (proof.rs). Mostly what it
//!      describes is not there, and opening refuses; so it does, whatever is there, where a record behind the damage proves it
//!      (manifest.rs), or nothing can be read of the manifest that CURRENT names. Then a repair, too, shows the newest state, or tells
//!      of a loss.
//! allowed.3. A directory without CURRENT, tables and log segments is that of a new database.

use std::collections::BTreeSet;
use std::path::Path;

use esker::{DumpOptions, DumpValue, Error, KeyspaceId, Loss, LostKeys};

use super::files::{Files, Role, disk, env, last_segment, path};
use super::manifest::{describes_a_state, is_unmistakable};
use super::proof::newest_commit_left;
use super::subject::Subject;
use esker_world::model::state::State;
use esker_world::world::DIR;

/// What harms have changed.
pub(super) struct Change {
    /// The files that are others, gone or new.
    names: BTreeSet<String>,
    /// Those of which some sectors cannot be read. They make no other state of it.
    unreadable: BTreeSet<String>,
    /// There is nothing of a database, as far as opening is concerned (allowed.3).
    pub(super) is_new: bool,
    /// The manifest in force is another, or another one is in force.
    manifest: bool,
    /// What is in force now may describe another state, or be nothing at all (allowed.2).
    is_mistakable: bool,
    /// It may describe an earlier one, and nothing tells that it is not the one in force.
    may_be_older: bool,
    /// If so: the newest commit that the files which are left prove.
    proven: u64,
    /// What stands in the place of the log's last segment, if that is another; nothing if a file that seems prepared for it is all
    /// that is there.
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

    /// Tables or files of values are others, or cannot be read.
    pub(super) fn touches_tables(&self) -> bool {
        let mut touched = self.names.union(&self.unreadable);
        touched.any(|name| matches!(Role::of(name), Role::Table | Role::Blob))
    }

    /// Whether a loss is one that unreadable sectors of tables and of the log explain, if nothing else is wrong (damage_judge.9). `before`: the
    /// undamaged files.
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
            // A gap shows in the segment behind it.
            Role::Segment => roles.contains(&Role::Segment),
            // Names of keyspaces are keys of a table, or commits of the log, too.
            _ => loss.keys == LostKeys::Names,
        }
    }

    /// No file that holds data is another.
    pub(super) fn is_harmless(&self) -> bool {
        self.names.union(&self.unreadable).all(|name| Role::of(name) == Role::Other)
    }

    /// The states that the database may show when it is opened.
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

    /// The states of its own that a repair may go by, newest first. One that `tells` of a loss of any keys may have gone by what is left of
    /// a manifest, or by another.
    pub(super) fn repaired_states<'a>(&self, subject: &'a Subject, tells: bool) -> Vec<&'a State> {
        match tells && self.manifest {
            true => std::iter::once(&subject.newest).chain(subject.chronicle.iter().rev()).collect(),
            false => self.states(subject),
        }
    }

    /// The states of its own that may be shown without a word of loss, newest first: the newest one, but for the exceptions.
    fn states<'a>(&self, subject: &'a Subject) -> Vec<&'a State> {
        let mut states = self.states_of_log(subject);
        if self.may_be_older {
            // What stands behind the newest commit never counted.
            let proven = self.proven.min(subject.shown_until(&subject.newest));
            let older = subject.chronicle.iter().rev();
            states.extend(older.filter(|state| subject.shown_until(state) >= proven));
        }
        states
    }

    /// The states that the log may end with (allowed.1), newest first.
    fn states_of_log<'a>(&self, subject: &'a Subject) -> Vec<&'a State> {
        let tail = self.tail.as_ref().filter(|_| !subject.closed);
        let at_stake = tail.map_or(0, |now| subject.tail.commits_at_stake(now));
        let is_blob_touched = self.touches(&[Role::Blob]) && !subject.closed;
        let at_stake = if is_blob_touched { subject.tail.commits() } else { at_stake };
        if at_stake == 0 {
            return vec![&subject.newest];
        }
        // A state may come back: the files may end at any time when it was the newest one.
        let newest = subject.newest.digest();
        let end = subject.recent.iter().rposition(|state| state.digest() == newest).unwrap_or(0);
        let most = subject.tail.commits();
        let back = most.min(end + at_stake);
        // What the last opening found may stand in the same segment.
        let earlier = subject.chronicle.iter().rev().take(most + 1);
        let earlier = earlier.filter(|_| subject.recent.len() <= back);
        subject.recent.iter().take(back + 1).chain(earlier).collect()
    }

    /// The states of another database that they may stand for; `tells` as above.
    pub(super) fn foreign_states<'a>(&self, donor: Option<&'a Subject>, tells: bool) -> Vec<&'a State> {
        let donor = donor.filter(|_| self.may_be_older || (tells && self.manifest));
        donor.into_iter().flat_map(|donor| &donor.chronicle).collect()
    }

    /// Whether the error is typed, and names a file that is another, or to which one has led: a manifest names tables and
    /// segments that are not there or are others; a segment says of the others that they are finished, or missing.
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

/// A key with the number of its keyspace.
type Place = (u32, Vec<u8>);

/// Whether the keys are all of this range.
fn is_within(keys: &LostKeys, (first, last): &(Place, Place)) -> bool {
    let place = |(id, key): &(KeyspaceId, Vec<u8>)| (id.get(), key.clone());
    match keys {
        LostKeys::Between(Some(low), Some(high)) => *first <= place(low) && place(high) <= *last,
        _ => false,
    }
}

/// The first and the last key of an undamaged table, as a dump tells them.
fn range_of_table(files: &Files, name: &str) -> (Place, Place) {
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
    match (shown, <[Place; 2]>::try_from(ends)) {
        (Ok(()), Ok([first, last])) => (first, last),
        other => panic!("subject.1: dump of the undamaged table {name}: {other:?}"),
    }
}

/// Of an encoded key: it begins with the number of its keyspace, in a byte, or from 0xF0 on in so many bytes behind that one.
fn place(encoded: &[u8]) -> Place {
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

/// The manifest that CURRENT names.
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

    /// The change of these files, which are others now, or new.
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
    fn damage_judge_9_keys_of_a_table_are_within_its_range() {
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
    fn allowed_3_a_directory_without_anything_of_a_database_is_a_new_one() {
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
