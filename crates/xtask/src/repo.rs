//! The files of the repository: tracked by git, or new and not ignored.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use crate::source::Source;

/// The repository, read into memory.
pub(crate) struct Repo {
    pub(crate) root: PathBuf,
    /// Sorted by path.
    pub(crate) files: Vec<RepoFile>,
}

/// One file.
pub(crate) struct RepoFile {
    /// Relative to the root, with `/` as separator.
    pub(crate) path: String,
    pub(crate) bytes: Vec<u8>,
    /// For Rust files.
    pub(crate) source: Option<Source>,
}

impl Repo {
    /// Reads the repository around the current directory.
    pub(crate) fn load() -> Result<Repo, String> {
        let root = PathBuf::from(git(&["rev-parse", "--show-toplevel"])?.trim_end());
        let list = git(&[
            "-C",
            &root.to_string_lossy(),
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])?;
        let paths: BTreeSet<&str> = list.split_terminator('\0').collect();
        let mut files = Vec::new();
        for path in paths {
            match std::fs::read(root.join(path)) {
                Ok(bytes) => files.push(RepoFile::new(path, bytes)),
                // The file is in the index but deleted in the work tree, or it is a dangling symbolic link.
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                Err(e) => return Err(format!("read {path}: {e}")),
            }
        }
        Ok(Repo::new(root, files))
    }

    fn new(root: PathBuf, mut files: Vec<RepoFile>) -> Repo {
        let test_modules: Vec<String> = files.iter().flat_map(RepoFile::test_module_stems).collect();
        for file in &mut files {
            let is_test = file.is_test_path()
                || test_modules.iter().any(|stem| {
                    file.path == format!("{stem}.rs") || file.path.starts_with(&format!("{stem}/"))
                });
            if let Some(source) = file.source.as_mut().filter(|_| is_test) {
                source.mark_all_as_test();
            }
        }
        Repo { root, files }
    }

    /// Returns the Rust files.
    pub(crate) fn rust(&self) -> impl Iterator<Item = (&RepoFile, &Source)> {
        self.files.iter().filter_map(|f| Some((f, f.source.as_ref()?)))
    }

    /// Returns the text files with one of these extensions.
    pub(crate) fn texts<'a>(&'a self, endings: &'a [&str]) -> impl Iterator<Item = (&'a RepoFile, &'a str)> {
        self.files
            .iter()
            .filter(|f| endings.iter().any(|e| f.path.ends_with(e)))
            .filter_map(|f| Some((f, f.text()?)))
    }

    pub(crate) fn get(&self, path: &str) -> Option<&RepoFile> {
        self.files.iter().find(|f| f.path == path)
    }

    /// Returns whether `path` is a file or directory of the repository.
    pub(crate) fn contains(&self, path: &str) -> bool {
        path.is_empty()
            || self.files.iter().any(|f| f.path == path || f.path.starts_with(&format!("{path}/")))
    }

    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Repo {
        let files = files.iter().map(|(path, text)| RepoFile::new(path, text.as_bytes().to_vec())).collect();
        Repo::new(PathBuf::new(), files)
    }
}

impl RepoFile {
    fn new(path: &str, bytes: Vec<u8>) -> RepoFile {
        let source = path.ends_with(".rs").then(|| Source::new(&String::from_utf8_lossy(&bytes)));
        RepoFile { path: path.to_owned(), bytes, source }
    }

    /// Returns the content if it is UTF-8.
    pub(crate) fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.bytes).ok()
    }

    fn is_test_path(&self) -> bool {
        self.path.ends_with("/tests.rs") || self.path.contains("/tests/") || self.path.contains("/benches/")
    }

    /// Returns the files, without `.rs`, that this one declares as `#[cfg(test)] mod name;`.
    fn test_module_stems(&self) -> Vec<String> {
        let Some(source) = &self.source else { return Vec::new() };
        let (folder, name) = self.path.rsplit_once('/').unwrap_or(("", &self.path));
        let folder = match name {
            "mod.rs" | "lib.rs" | "main.rs" => folder.to_owned(),
            _ => format!("{folder}/{}", name.trim_end_matches(".rs")),
        };
        source.test_modules.iter().map(|module| format!("{folder}/{module}")).collect()
    }
}

fn git(args: &[&str]) -> Result<String, String> {
    let output = Command::new("git").args(args).output().map_err(|e| format!("run git: {e}"))?;
    if !output.status.success() {
        return Err(format!("git {}: {}", args[0], String::from_utf8_lossy(&output.stderr).trim_end()));
    }
    String::from_utf8(output.stdout).map_err(|_| "git named a file that is not UTF-8".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_files_are_known_by_path_and_by_declaration() {
        let repo = Repo::of(&[
            ("crates/a/src/b.rs", "#[cfg(test)]\nmod sim;\n"),
            ("crates/a/src/b/sim.rs", "fn f() {}\n"),
            ("crates/a/src/c/tests.rs", "fn f() {}\n"),
            ("crates/a/src/c/other.rs", "fn f() {}\n"),
        ]);
        let is_test = |path: &str| repo.get(path).unwrap().source.as_ref().unwrap().is_test_line(1);
        assert!(is_test("crates/a/src/b/sim.rs"));
        assert!(is_test("crates/a/src/c/tests.rs"));
        assert!(!is_test("crates/a/src/c/other.rs"));
    }
}
