//! The configuration file: TOML with one key for each option, without sections.
//!
//! ```text
//!   # a comment
//!   port = 6379
//!   bind = ["127.0.0.1", "::1"]
//!   memory = "2gb"
//! ```
//!
//! config_file.1. After a crash the file has its old contents or its new ones. The new ones have the same
//!     permissions from the first byte on that others could read, and the same owner if the server may set
//!     it.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a file of the operator, none of the database"
)]

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use toml_edit::{Document, DocumentMut, Item, Value};

use crate::config::kind::Kind;

/// A value as the file has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// A text.
    Text(String),
    /// A whole number.
    Number(i64),
    /// `true` or `false`.
    Switch(bool),
    /// A list of texts.
    Texts(Vec<String>),
    /// Something else, by its name in TOML.
    Other(&'static str),
}

/// A key with its value.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The name of an option.
    pub name: String,
    /// The number of its line, from 1.
    pub line: usize,
    /// The value.
    pub value: Written,
}

/// A new value for an option.
pub struct Change {
    /// The names that the option may have in the file. A new entry gets the first.
    pub names: Vec<String>,
    /// The value, as `CONFIG GET` shows it.
    pub value: String,
    /// The type of the value.
    pub kind: Kind,
}

/// Reads a configuration file.
///
/// # Errors
/// The file and the line, and what is wrong there.
pub fn read(path: &Path) -> Result<Vec<Entry>, String> {
    let text = text_of(path)?;
    let document = Document::parse(text.as_str()).map_err(|error| broken(path, &text, &error))?;
    let entries = document.as_table().iter().map(|(name, item)| {
        let key = document.as_table().get_key_value(name).map(|(key, _)| key);
        let start = key.and_then(toml_edit::Key::span).or_else(|| item.span()).map_or(0, |span| span.start);
        Entry { name: name.to_owned(), line: line_at(&text, start), value: written(item) }
    });
    Ok(entries.collect())
}

fn text_of(path: &Path) -> Result<String, String> {
    let bytes = fs::read(path).map_err(|error| format!("read {}: {error}", path.display()))?;
    String::from_utf8(bytes).map_err(|_| format!("{}: not UTF-8", path.display()))
}

fn broken(path: &Path, text: &str, error: &toml_edit::TomlError) -> String {
    let line = error.span().map_or(1, |span| line_at(text, span.start));
    format!("{}:{line}: {}", path.display(), error.message().replace('\n', ", "))
}

fn line_at(text: &str, at: usize) -> usize {
    1 + text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count()
}

fn written(item: &Item) -> Written {
    match item.as_value() {
        Some(Value::String(text)) => Written::Text(text.value().clone()),
        Some(Value::Integer(number)) => Written::Number(*number.value()),
        Some(Value::Boolean(is)) => Written::Switch(*is.value()),
        Some(Value::Array(list)) => {
            let texts: Option<Vec<_>> = list.iter().map(|value| value.as_str().map(str::to_owned)).collect();
            texts.map_or(Written::Other("array of other values than strings"), Written::Texts)
        }
        _ => Written::Other(item.type_name()),
    }
}

/// Changes values in a configuration file, and keeps all else in it (config_file.1).
///
/// # Errors
/// Why it could not be read or written. The file is then unchanged.
pub fn rewrite(path: &Path, changes: &[Change]) -> Result<(), String> {
    // A link stays a link.
    let path = &fs::canonicalize(path).map_err(|error| format!("open {}: {error}", path.display()))?;
    let text = text_of(path)?;
    let mut document: DocumentMut = text.parse().map_err(|error| broken(path, &text, &error))?;
    for change in changes {
        let present = change.names.iter().find(|name| document.contains_key(name));
        let Some(name) = present.or(change.names.first()) else { continue };
        let old = document.get(name).and_then(Item::as_value);
        let decor = old.map(|value| value.decor().clone());
        let mut new = value_of(change, old);
        if let Some(decor) = decor {
            *new.decor_mut() = decor;
        }
        document[name.as_str()] = Item::Value(new);
    }
    let mut new = document.to_string();
    if text.contains("\r\n") {
        new = new.replace('\n', "\r\n");
    }
    if new == text {
        return Ok(());
    }
    replace(path, &new).map_err(|error| format!("write {}: {error}", path.display()))
}

fn value_of(change: &Change, old: Option<&Value>) -> Value {
    let text = &change.value;
    match change.kind {
        Kind::Int(..) | Kind::Bytes(_) if text.parse::<i64>().is_ok() => {
            Value::from(text.parse::<i64>().unwrap_or_default())
        }
        Kind::Switch if !old.is_some_and(Value::is_str) => Value::from(text == "yes"),
        _ => Value::from(text.as_str()),
    }
}

fn replace(path: &Path, text: &str) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let new = PathBuf::from(name);
    // What an earlier attempt has left.
    let _ = fs::remove_file(&new);
    let written = write_new(&new, path, text);
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written
}

fn write_new(new: &Path, path: &Path, text: &str) -> io::Result<()> {
    let before = fs::metadata(path)?;
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(new)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::{MetadataExt, fchown};
        // Only the superuser may give a file away. The file of another user is the server's from then on.
        let _ = fchown(&file, Some(before.uid()), Some(before.gid()));
    }
    file.set_permissions(before.permissions())?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(new, path)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    match cfg!(unix) {
        true => fs::File::open(parent.unwrap_or(Path::new(".")))?.sync_all(),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(names: &[&str], value: &str, kind: Kind) -> Change {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        Change { names, value: value.to_owned(), kind }
    }

    #[test]
    fn entries_have_their_lines() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("esker.toml");
        fs::write(&path, "# a\n\nport = 7\nbind = [\n  'a', # b\n  'b',\n]\nx = 1.5\n[y]\nz = 1\n").unwrap();
        let entries = read(&path).unwrap();
        let lines: Vec<_> = entries.iter().map(|entry| (entry.name.as_str(), entry.line)).collect();
        assert_eq!(lines, [("port", 3), ("bind", 4), ("x", 8), ("y", 9)]);
        assert_eq!(entries[1].value, Written::Texts(vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(entries[2].value, Written::Other("float"));
        fs::write(&path, "port = 7\nport = 8\n").unwrap();
        let error = read(&path).unwrap_err();
        assert!(error.contains("esker.toml:2: duplicate key"), "{error}");
    }

    #[test]
    fn a_rewrite_keeps_comments_order_and_permissions() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("esker.toml");
        let before = "# first\nfsync = 'always'   # why\n\nmemory = \"2gb\"\ntimeout=5# s\nprotected-mode = \"yes\"\n# last\n";
        fs::write(&path, before).unwrap();
        #[cfg(unix)]
        let mode = |path: &Path| {
            use std::os::unix::fs::PermissionsExt;
            fs::metadata(path).unwrap().permissions().mode() & 0o777
        };
        #[cfg(unix)]
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o640)).unwrap();
        let changes = [
            change(&["fsync", "appendfsync"], "no", Kind::Text),
            change(&["timeout"], "7", Kind::Int(0, 9)),
            change(&["protected-mode"], "no", Kind::Switch),
            change(&["latency-tracking"], "no", Kind::Switch),
            change(&["requirepass"], "a \"quoted\" one", Kind::Text),
        ];
        rewrite(&path, &changes).unwrap();
        let after = fs::read_to_string(&path).unwrap();
        let wanted = "# first\nfsync = \"no\"   # why\n\nmemory = \"2gb\"\ntimeout=7# s\nprotected-mode = \"no\"\n\
                      latency-tracking = false\nrequirepass = 'a \"quoted\" one'\n# last\n";
        assert_eq!(after, wanted);
        #[cfg(unix)]
        assert_eq!(mode(&path), 0o640);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn a_rewrite_keeps_ends_of_lines() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("esker.toml");
        fs::write(&path, "# a\r\nport = 7\r\n").unwrap();
        rewrite(&path, &[change(&["timeout"], "5", Kind::Int(0, 9))]).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "# a\r\nport = 7\r\ntimeout = 5\r\n");
    }

    #[test]
    fn a_rewrite_that_fails_leaves_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("esker.toml");
        assert!(rewrite(&path, &[]).unwrap_err().contains("esker.toml"));
        fs::write(&path, "port = \n").unwrap();
        let error = rewrite(&path, &[change(&["timeout"], "7", Kind::Text)]).unwrap_err();
        assert!(error.contains("esker.toml:1:"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "port = \n");
    }

    #[cfg(unix)]
    #[test]
    fn a_link_stays_a_link() {
        let directory = tempfile::tempdir().unwrap();
        let (path, link) = (directory.path().join("a"), directory.path().join("b"));
        fs::write(&path, "").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        rewrite(&link, &[change(&["timeout"], "7", Kind::Int(0, 9))]).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "timeout = 7\n");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }
}
