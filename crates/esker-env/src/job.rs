//! Job files: prove that leftovers of a crash belong to Esker.
//!
//! ```text
//!   JobFile::begin --> ESKER-JOB-<id>: magic, kind, id, checksum; durable --> files --> end: removed last
//!   JobFile::left  --> job files of unfinished jobs of a kind in a directory
//! ```
//!
//! Checkpoints, backups, restores and replica copies work in directories that other programs may write to.
//! They remove what an earlier process left behind, and a name alone does not prove what a file is.
//!
//! job.1. A job file is durable before the job creates anything else, and removed after all other leftovers
//!     are durably gone. So after a crash, leftovers lie beside their job file.
//!
//! - A job file contains a checksum of its content, and its name contains the same random id. Any other
//!   file is not a job file and is not touched.
//! - Temporary files of a job have its id in their names ([`JobFile::temporary`]). Cleanup removes only
//!   these, or, in a directory created by the job, files with Esker's names. Links are removed, not followed.

use std::io;
use std::path::{Path, PathBuf};

use crate::{Entry, Env, OpenOptions, read_range};

/// Prefix of the names of job files.
const PREFIX: &str = "ESKER-JOB-";
/// The first line of a job file.
const MAGIC: &str = "This file belongs to a job of Esker. format 1";
/// Longer files are not job files.
const BYTES_MAX: u64 = 256;

/// The file of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobFile {
    dir: PathBuf,
    id: u64,
}

impl JobFile {
    /// Begins a job in an existing directory, durably (job.1). `kind` is a single word.
    pub fn begin(env: &Env, dir: &Path, kind: &str) -> io::Result<JobFile> {
        let job = JobFile { dir: dir.to_owned(), id: env.random.next_u64() };
        let made = || {
            let file = env.fs.open(&job.path(), OpenOptions::create_new())?;
            let written =
                file.write_all_at(content(kind, job.id).as_bytes(), 0).and_then(|()| file.sync_data());
            drop(file);
            written.and_then(|()| env.fs.sync_dir_if_readable(dir)).inspect_err(|_| {
                // The first error matters. A torn job file is never touched.
                let _ = env.fs.remove_file(&job.path());
            })
        };
        made().map(|()| job)
    }

    /// Returns the unfinished jobs of this kind, ordered by name. The caller prevents others from
    /// starting.
    pub fn left(env: &Env, dir: &Path, kind: &str) -> io::Result<Vec<JobFile>> {
        let mut names = env.fs.list_dir(dir)?;
        names.sort_unstable();
        let jobs = names.iter().filter_map(|name| {
            let job = JobFile { dir: dir.to_owned(), id: id_of(name)? };
            match job.is_of(env, kind) {
                Ok(true) => Some(Ok(job)),
                Ok(false) => None,
                Err(e) => Some(Err(e)),
            }
        });
        jobs.collect()
    }

    /// Returns whether `name` has the form of a job file's name. Says nothing about its content.
    pub fn is_name(name: &str) -> bool {
        id_of(name).is_some()
    }

    fn is_of(&self, env: &Env, kind: &str) -> io::Result<bool> {
        let path = self.path();
        match env.fs.entry(&path)? {
            Some(Entry::File { len, .. }) if len <= BYTES_MAX => {}
            _ => return Ok(false),
        }
        let read = || {
            let file = env.fs.open(&path, OpenOptions::read())?;
            let len = file.len()?.min(BYTES_MAX) as usize;
            read_range(&*file, 0, len)
        };
        match read() {
            Ok(found) => Ok(found == content(kind, self.id).as_bytes()),
            // The job ended meanwhile, or the file was replaced.
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof) => Ok(false),
            Err(e) => Err(e),
        }
    }

    fn path(&self) -> PathBuf {
        self.dir.join(format!("{PREFIX}{:016x}", self.id))
    }

    /// Returns the path of a temporary file of this job.
    pub fn temporary(&self, dir: &Path, name: &str) -> PathBuf {
        dir.join(format!("{name}-{:016x}.tmp", self.id))
    }

    /// Durably removes the temporary files of this job in a directory, which may be missing.
    pub fn remove_temporary(&self, env: &Env, dir: &Path) -> io::Result<()> {
        if env.fs.entry(dir)? != Some(Entry::Dir) {
            return Ok(());
        }
        let ending = format!("-{:016x}.tmp", self.id);
        let mut names = env.fs.list_dir(dir)?;
        names.sort_unstable();
        names.retain(|name| name.ends_with(&ending));
        names.iter().try_for_each(|name| remove_if_file(env, &dir.join(name)))?;
        if names.is_empty() { Ok(()) } else { env.fs.sync_dir_if_readable(dir) }
    }

    /// Ends the job by removing its file. Everything else it created must already be durably gone (job.1).
    pub fn end(self, env: &Env) -> io::Result<()> {
        remove_if_file(env, &self.path())
    }
}

/// Removes a file or a link, if present. Directories stay.
fn remove_if_file(env: &Env, path: &Path) -> io::Result<()> {
    match env.fs.entry(path)? {
        None | Some(Entry::Dir) => Ok(()),
        Some(_) => env.fs.remove_file(path),
    }
}

fn id_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(PREFIX)?;
    let is_ours = digits.len() == 16 && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if is_ours { u64::from_str_radix(digits, 16).ok() } else { None }
}

fn content(kind: &str, id: u64) -> String {
    let text = format!("{MAGIC}\nkind {kind}\nid {id:016x}\n");
    let sum = checksum(text.as_bytes());
    format!("{text}checksum {sum:016x}\n")
}

/// FNV-1a: detects torn bytes, not forged ones.
fn checksum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xCBF2_9CE4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01B3))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{Fs, MemFs};

    #[test]
    fn only_what_a_job_file_proves_is_removed() {
        let fs = MemFs::new();
        let env = Env::simulated(Arc::new(fs.clone()), 1);
        let dir = Path::new("dir");
        fs.create_dir_all(dir).unwrap();
        let write = |path: &Path, bytes: &[u8]| {
            fs.open(path, OpenOptions::create()).unwrap().write_all_at(bytes, 0).unwrap();
        };
        let job = JobFile::begin(&env, dir, "test").unwrap();
        assert_eq!(JobFile::left(&env, dir, "test").unwrap(), std::slice::from_ref(&job), "job.1");
        assert_eq!(JobFile::left(&env, dir, "other").unwrap(), []);
        let (ours, others) = (job.temporary(dir, "incoming"), dir.join("incoming.tmp"));
        write(&ours, b"1");
        write(&others, b"2");
        job.remove_temporary(&env, dir).unwrap();
        assert!(!fs.exists(&ours).unwrap() && fs.exists(&others).unwrap());
        // A file that is damaged, copied to another name or truncated is not a job file.
        let text = content("test", job.id);
        for at in 0..text.len() {
            let mut torn = text.clone().into_bytes();
            torn[at] ^= 1;
            write(&job.path(), &torn);
            assert_eq!(JobFile::left(&env, dir, "test").unwrap(), [], "byte {at}");
        }
        write(&dir.join("ESKER-JOB-0000000000000007"), text.as_bytes());
        assert_eq!(JobFile::left(&env, dir, "test").unwrap(), []);
        write(&job.path(), text.as_bytes());
        JobFile::left(&env, dir, "test").unwrap().pop().unwrap().end(&env).unwrap();
        assert!(!fs.exists(&job.path()).unwrap());
        assert!(fs.crash_strict().list_dir(dir).unwrap().len() < 4);
    }
}
