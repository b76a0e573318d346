//! Every Rust file opens with a module doc: a reader learns what the file is for before the first line of
//! code.

use crate::finding::Finding;
use crate::repo::Repo;

pub(super) fn check(repo: &Repo) -> Vec<Finding> {
    repo.rust()
        .filter(|(_, source)| !source.text.starts_with("//!"))
        .map(|(file, _)| Finding::error(&file.path, 1, "open the file with a module doc (`//!`)"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::places;

    #[test]
    fn a_file_without_doc_is_found() {
        let files = [("a.rs", "//! Doc.\n"), ("b.rs", "use x;\n//! Late.\n"), ("c.rs", ""), ("d.md", "x")];
        assert_eq!(places(check, &files), ["b.rs:1", "c.rs:1"]);
    }
}
