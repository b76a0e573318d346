//! Whether changed bytes of the manifest in force may describe an earlier state.
//!
//! ```text
//!   undamaged manifest --dump--> records --bytes now--> is there an intact one after the first damaged one?
//! ```
//!
//! A record is valid only in its file and at its position (docs/formats/recordio.md), so an intact record, or
//! marker, after damage proves it. If no record is damaged, the bytes after them are not an edit. Another
//! manifest has another salt, so nothing is proven if the file now starts with the header and a readable
//! record of another one. A file without a readable edit describes nothing, so it is evident that the
//! manifest named by CURRENT is lost.

use std::collections::BTreeSet;
use std::ops::Range;

use esker::DumpOptions;
use esker::recordio::Reader;

use super::files::{Files, disk, env, path};

/// Returns whether these bytes describe the same state as the manifest, or are evidently damaged.
pub(super) fn is_unmistakable(before: &Files, name: &str, now: &[u8]) -> bool {
    let Some(bytes) = before.get(name) else { return false };
    // Each piece starts where the previous one ends: header, records, the rest.
    let mut places = BTreeSet::new();
    let options = DumpOptions::default().env(env(&disk(before), 0)).entries(false);
    let shown = options.dump(path(name), |item| {
        places.insert(item.offset as usize);
    });
    shown.unwrap_or_else(|error| panic!("subject.1: dump of the undamaged manifest: {error}"));
    let places: Vec<usize> = places.into_iter().collect();
    let parts: Vec<Range<usize>> = places.windows(2).map(|ends| ends[0]..ends[1]).collect();
    let is_whole = |part: &Range<usize>| now.get(part.clone()) == bytes.get(part.clone());
    let Some(damaged) = parts.iter().position(|part| !is_whole(part)) else { return true };
    // The first part is the header, which contains the salt.
    if damaged == 0 && begins_as_a_file(name, now) {
        return false;
    }
    parts[damaged..].iter().any(is_whole)
}

/// Returns whether the header and the first record are intact.
fn begins_as_a_file(name: &str, now: &[u8]) -> bool {
    let file = Files::from([(name.to_owned(), now.to_vec())]);
    let reader = Reader::options().env(&env(&disk(&file), 0)).open(path(name));
    reader.is_ok_and(|mut reader| matches!(reader.next(), Ok(Some(_))))
}

/// Returns whether these bytes contain a readable edit.
pub(super) fn describes_a_state(name: &str, now: &[u8]) -> bool {
    let file = Files::from([(name.to_owned(), now.to_vec())]);
    let options = DumpOptions::default().env(env(&disk(&file), 0)).entries(false);
    let mut edits = 0;
    let shown = options.dump(path(name), |item| edits += u32::from(item.kind == "edit"));
    shown.is_ok() && edits > 0
}

#[cfg(test)]
mod tests {
    use esker::Db;
    use esker_env::MemFs;

    use super::super::files::read;
    use super::*;
    use esker_world::world::DIR;

    #[test]
    fn the_first_bytes_of_another_manifest_leave_no_proof() {
        let made = MemFs::new();
        let open = |fs, seed| Db::builder().env(env(fs, seed)).background(false).memory(1 << 20).open(DIR);
        let other = MemFs::new();
        open(&other, 2).unwrap().close().unwrap();
        let is_manifest = |(name, _): &(String, Vec<u8>)| name.starts_with("MANIFEST-");
        let (_, earlier) = read(&other).into_iter().find(is_manifest).unwrap();
        let db = open(&made, 1).unwrap();
        for n in 0..20_u8 {
            db.default_keyspace().put([n], [n]).unwrap();
            db.flush().unwrap();
        }
        db.close().unwrap();
        let files = read(&made);
        let (name, bytes) = files.clone().into_iter().rfind(is_manifest).unwrap();
        assert!(earlier.len() < bytes.len() / 2);
        let begun = |len: usize| [&earlier[..len], &bytes[len..]].concat();
        assert!(!is_unmistakable(&files, &name, &begun(earlier.len())));
        // A header alone describes nothing, and the bytes after it show the damage.
        assert!(is_unmistakable(&files, &name, &begun(16)));
        let mut flipped = bytes.clone();
        flipped[30] ^= 1;
        assert!(is_unmistakable(&files, &name, &flipped));
    }

    #[test]
    fn a_manifest_describes_something_as_long_as_an_edit_can_be_read() {
        let made = MemFs::new();
        let db = Db::builder().env(env(&made, 1)).background(false).memory(1 << 20).open(DIR).unwrap();
        db.close().unwrap();
        let files = read(&made);
        let (name, bytes) = files.iter().find(|(name, _)| name.starts_with("MANIFEST-")).unwrap();
        let described = |len: &usize| describes_a_state(name, &bytes[..*len]);
        let shortest = (0..=bytes.len()).find(described).unwrap();
        assert!(shortest > 16, "a header alone describes nothing: {shortest}");
        assert!((shortest..=bytes.len()).all(|len| described(&len)));
        assert!(!describes_a_state(name, &vec![0xFF; bytes.len()]));
    }
}
