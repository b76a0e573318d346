//! Names of objects, and the listing of a directory.

use std::collections::BTreeMap;

use super::Listed;

/// The directory of records, in which an empty object is a void record.
pub(super) const RECORDS: &str = "backups";
/// The directories of backups in a store.
pub(super) const DIRS: [&str; 3] = [RECORDS, "files", "feed"];

/// Returns the name of a generation of a file. Generation 0 has the plain name.
pub(super) fn of_generation(name: &str, generation: u64) -> String {
    format!("{name}.g{generation:06}")
}

/// Returns the file and the generation of an object.
pub(super) fn generation_of(object: &str) -> (&str, u64) {
    let parts = object.rsplit_once(".g");
    let parsed = parts.and_then(|(name, digits)| {
        let generation: u64 = digits.parse().ok()?;
        (of_generation(name, generation) == object && generation > 0).then_some((name, generation))
    });
    parsed.unwrap_or((object, 0))
}

/// The directory `dir` and the name in it of a path relative to the store.
pub(super) fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

/// Joins a directory and a name in it.
pub(super) fn join(dir: &str, name: &str) -> String {
    if dir.is_empty() { name.to_owned() } else { format!("{dir}/{name}") }
}

/// The files of a directory.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// The sizes of the generations of each file.
    files: BTreeMap<String, BTreeMap<u64, u64>>,
    pub(super) dirs: Vec<String>,
    /// Ids of void records, as names.
    pub(super) void: Vec<String>,
}

impl Listing {
    pub(super) fn new(dir: &str, listed: Vec<Listed>) -> Listing {
        let mut listing = Listing::default();
        for Listed { name, size } in listed {
            match size {
                None => listing.dirs.push(name),
                Some(0) if dir == RECORDS => listing.void.push(name),
                Some(size) => {
                    let (file, generation) = generation_of(&name);
                    listing.files.entry(file.to_owned()).or_default().insert(generation, size);
                }
            }
        }
        listing
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.files.keys()
    }

    /// Returns the newest generation of a file, and its size.
    pub(super) fn newest(&self, file: &str) -> Option<(u64, u64)> {
        let (generation, size) = self.files.get(file)?.last_key_value()?;
        Some((*generation, *size))
    }

    pub(super) fn insert(&mut self, file: &str, generation: u64, size: u64) {
        self.files.entry(file.to_owned()).or_default().insert(generation, size);
    }

    /// Returns the generations of a file up to `max`.
    pub(super) fn generations(&self, file: &str, max: u64) -> Vec<u64> {
        self.files.get(file).into_iter().flat_map(|of_it| of_it.range(..=max)).map(|(at, _)| *at).collect()
    }

    /// Returns the generations up to `max` that newer ones of the same file have replaced.
    pub(super) fn replaced(&self, max: u64) -> Vec<(String, u64)> {
        let mut replaced = Vec::new();
        for (file, of_it) in &self.files {
            let older = of_it.keys().rev().skip(1).filter(|generation| **generation <= max);
            replaced.extend(older.map(|generation| (file.clone(), *generation)));
        }
        replaced
    }

    /// Forgets a generation.
    pub(super) fn remove(&mut self, file: &str, generation: u64) {
        if let Some(of_it) = self.files.get_mut(file) {
            of_it.remove(&generation);
            if of_it.is_empty() {
                self.files.remove(file);
            }
        }
    }
}

/// Returns the object of a file's generation in a directory.
pub(super) fn object(dir: &str, file: &str, generation: u64) -> String {
    match generation {
        0 => join(dir, file),
        _ => join(dir, &of_generation(file, generation)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_generation_of_a_name_is_the_file() {
        assert_eq!(generation_of("KEYS.g000012"), ("KEYS", 12));
        for plain in ["KEYS", "KEYS.g12", "KEYS.g000000", "KEYS.gx", "a.g-00001"] {
            assert_eq!(generation_of(plain), (plain, 0));
        }
        let listed = |name: &str, size| Listed { name: name.to_owned(), size };
        let found = vec![
            listed("a.g000002", Some(2)),
            listed("a.g000010", Some(3)),
            listed("a", Some(1)),
            listed("b", Some(0)),
            listed("d", None),
        ];
        let listing = Listing::new("files", found.clone());
        assert_eq!(listing.newest("a"), Some((10, 3)));
        assert_eq!(listing.newest("b"), Some((0, 0)));
        assert_eq!(listing.generations("a", 9), [0, 2]);
        assert_eq!(listing.replaced(1), [("a".to_owned(), 0)]);
        assert_eq!(Listing::new(RECORDS, found).void, ["b"]);
    }
}
