//! The file of users: one line per user, as in `ACL LIST`.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a file of the operator, none of the database"
)]

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use super::user::User;
use crate::command::spec::Specs;

/// Error text if no file is configured.
pub const NONE: &str = "ERR This server is not configured to use an ACL file: start it with --aclfile PATH.";

/// Reads the users of a file. A missing file has none.
pub fn read(path: &Path, specs: Specs) -> Result<BTreeMap<String, Arc<User>>, String> {
    let text = match fs::read(path) {
        Ok(bytes) => String::from_utf8(bytes).map_err(|_| format!("ERR {}: not UTF-8", path.display()))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(format!("ERR read {}: {error}", path.display())),
    };
    parse(&text, specs).map_err(|(line, why)| {
        let why = why.strip_prefix("ERR ").unwrap_or(&why);
        format!(
            "ERR {}:{line}: {why}. WARNING: no change to the previously active rules was made",
            path.display()
        )
    })
}

/// Parses the users of a text. The error is the number of a line and what is wrong with it.
pub fn parse(text: &str, specs: Specs) -> Result<BTreeMap<String, Arc<User>>, (usize, String)> {
    let mut users = BTreeMap::new();
    for (at, line) in text.lines().enumerate() {
        let mut words = line.split_ascii_whitespace();
        match words.next() {
            None => continue,
            Some(first) if first.starts_with('#') => continue,
            Some("user") => {}
            Some(_) => return Err((at + 1, "should start with user keyword".to_owned())),
        }
        let name = words.next().ok_or_else(|| (at + 1, "a name is missing".to_owned()))?;
        let mut user = User::new(name, specs);
        let rules: Vec<_> = words.map(str::as_bytes).collect();
        user.apply(&rules).map_err(|why| (at + 1, why))?;
        if users.insert(name.to_owned(), Arc::new(user)).is_some() {
            return Err((at + 1, format!("the user '{name}' is there twice")));
        }
    }
    Ok(users)
}

/// Replaces the file atomically: after a crash it has the old users or the new ones.
pub fn write(path: &Path, users: &[Arc<User>]) -> Result<(), String> {
    let text: String = users.iter().map(|user| user.line() + "\n").collect();
    let new = path.with_extension("new");
    let written = || -> io::Result<()> {
        let mut options = fs::OpenOptions::new();
        options.write(true).create(true).truncate(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        fs::File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
    };
    written().map_err(|error| format!("ERR write {}: {error}", path.display()))
}
