//! The directory that a repair fills: a new or an empty one, and nowhere in the damaged database.
//!
//! ```text
//!   target --what is missing of it cut off--> a directory that is there --"..", ".."--> is one of them the source?
//! ```
//!
//! TD1. It does not lie in the source, whatever links and `..` are on the way: what is made there would be a change of
//!      the source (RP1). Nothing is created before that is known.
//! TD2. Directories are told by what is in them, since their paths do not tell: one that has every name that the source
//!      has is taken for the source. So a target in a copy of the source is refused, too.
//! TD3. A database that others have made there since it was looked into is left alone. Not so one that is made while a failed repair takes its
//!      files away again, when the lock is nobody's.

use std::path::{Component, Path, PathBuf};

use esker_env::Env;

use crate::types::{Error, Result};

/// So many directories above the target are looked at. Above the root `..` leads nowhere.
const DEPTH_MAX: usize = 1000;

/// The directory that a repair fills.
pub(super) struct TargetDir(PathBuf);

impl TargetDir {
    /// Refuses a target that is not empty or lies in the source. Changes nothing.
    pub(super) fn choose(env: &Env, source: &Path, target: &Path) -> Result<TargetDir> {
        let io = |e| Error::io("look into", target, e);
        if lies_in(env, source, target)? {
            let text = format!(
                "{} lies in the damaged database, or in a directory that looks the same: give a new directory outside \
                 of it",
                target.display()
            );
            return Err(Error::Invalid(text));
        }
        if env.fs.exists(target).map_err(io)? && !env.fs.list_dir(target).map_err(io)?.is_empty() {
            let text = format!("{} is not empty: give a new directory to repair into", target.display());
            return Err(Error::Invalid(text));
        }
        Ok(TargetDir(target.to_path_buf()))
    }

    /// Removes what an unfinished repair has made (RP4). The directory was empty, so all in it is ours.
    pub(super) fn clear(&self, env: &Env) {
        for name in env.fs.list_dir(&self.0).unwrap_or_default() {
            // The error that matters is the one that ended the repair.
            let _ = env.fs.remove_file(&self.0.join(name));
        }
    }
}

/// Whether the target is the source or lies in it (TD1).
fn lies_in(env: &Env, source: &Path, target: &Path) -> Result<bool> {
    let mut names = env.fs.list_dir(source).map_err(|e| Error::io("list", source, e))?;
    // A directory that cannot be looked into is none that a repair could have read.
    let has = |dir: &Path, name: &String| env.fs.exists(&dir.join(name)).unwrap_or(false);
    // A name that is no text was listed in another form.
    names.retain(|name| has(source, name));
    let is_source = |dir: &Path| names.iter().all(|name| has(dir, name));
    let mut there = None;
    for dir in upwards(target) {
        if env.fs.exists(dir).map_err(|e| Error::io("look for", dir, e))? {
            there = Some(dir);
            break;
        }
        if ends_in_parent(dir) {
            let text =
                format!("{}: leave out the `..` behind a directory that is not there", target.display());
            return Err(Error::Invalid(text));
        }
    }
    if upwards(target).any(|dir| dir == source || is_source(dir)) {
        return Ok(true);
    }
    let Some(mut above) = there.map(Path::to_path_buf) else { return Ok(false) };
    for _ in 0..DEPTH_MAX {
        above.push("..");
        // A file system that only compares paths knows no `..`: the path itself said all there is to say.
        if !env.fs.exists(&above).unwrap_or(false) {
            break;
        }
        if is_source(&above) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The path, and the directories above it as far as it names them.
fn upwards(path: &Path) -> impl Iterator<Item = &Path> {
    let all =
        std::iter::successors(Some(path), |path| if ends_in_parent(path) { None } else { path.parent() });
    // The empty path is the directory that relative ones start at.
    all.map(|path| if path.as_os_str().is_empty() { Path::new(".") } else { path })
}

fn ends_in_parent(path: &Path) -> bool {
    path.components().next_back() == Some(Component::ParentDir)
}
