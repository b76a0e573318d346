//! Entries for fuzzers: version edits, manifests and `CURRENT`, on any bytes.
//!
//! ```text
//!   bytes --as they are, and with right checksums--> MANIFEST-000001 --> recover, salvage: they agree
//!                                                    CURRENT --> read_current
//! ```

use std::path::Path;
use std::sync::Arc;

use esker_env::{Env, MemFs, OpenOptions, read_range};

use super::edit::VersionEdit;
use super::file_name::{CURRENT, manifest_name};
use super::log::{ManifestLog, current_text, read_current};
use super::salvage::salvage;
use crate::encoding::checksum::crc32c;
use crate::recordio;
use crate::types::{Error, FileId};

const DIR: &str = "db";
const ID: FileId = FileId::new(1);

/// A version edit; decoded edits must encode to the same bytes.
pub fn version_edit(bytes: &[u8]) {
    if let Ok(edit) = VersionEdit::decode(bytes) {
        assert_eq!(VersionEdit::decode(&edit.encode()), Ok(edit));
    }
}

/// Reads the bytes as the manifest in force, as opening and as repair do; those must agree.
pub fn manifest_file(bytes: &[u8]) {
    read_manifest(bytes);
    let mut bytes = bytes.to_vec();
    recordio::fuzzing::repair(&mut bytes);
    read_manifest(&bytes);
}

fn read_manifest(bytes: &[u8]) {
    let name = manifest_name(ID);
    let env = directory(&[(CURRENT, current_text(ID).as_bytes()), (&name, bytes)]);
    let recovered = ManifestLog::recover(&env, Path::new(DIR));
    let salvaged = salvage(&env, &Path::new(DIR).join(name));
    match (recovered, salvaged) {
        (Ok(Some((id, state))), Ok(salvaged)) => {
            assert!(
                id == ID && salvaged.complete && salvaged.damage.is_empty(),
                "manifest_salvage.2: {:?}",
                salvaged.damage
            );
            assert_eq!(salvaged.state, Some(state));
        }
        (Ok(None), _) => panic!("the manifest is there, and CURRENT names it"),
        (Ok(Some(_)), Err(error)) => panic!("opening takes what repair refuses: {error}"),
        (Err(error), Ok(salvaged)) => assert!(!salvaged.complete, "manifest_salvage.2: {error}"),
        (Err(_), Err(_)) => {}
    }
}

/// Reads the bytes as `CURRENT`, as they are and with the checksum of what stands before the first space.
pub fn current(bytes: &[u8]) {
    read_as_current(bytes);
    let name = bytes.split(|byte| *byte == b' ').next().unwrap_or_default();
    read_as_current(&[name, format!(" {:08x}\n", crc32c(name)).as_bytes()].concat());
}

fn read_as_current(bytes: &[u8]) {
    let env = directory(&[(CURRENT, bytes)]);
    match read_current(&env, Path::new(DIR)) {
        Ok(Some(id)) => assert_eq!(current_text(id).as_bytes(), bytes, "one manifest has one name"),
        Ok(None) => panic!("CURRENT is there"),
        Err(error) => assert!(error.is_corrupt(), "{error}"),
    }
    // What it names is missing.
    assert!(ManifestLog::recover(&env, Path::new(DIR)).is_err_and(|error| error.is_corrupt()));
}

/// A database's directory with these files.
fn directory(files: &[(&str, &[u8])]) -> Env {
    let env = Env::simulated(Arc::new(MemFs::new()), 1);
    let dir = Path::new(DIR);
    env.fs.create_dir_all(dir).expect("memory does not fail");
    for (name, bytes) in files {
        let file = env.fs.open(&dir.join(name), OpenOptions::create_new()).expect("memory does not fail");
        file.write_all_at(bytes, 0).expect("memory does not fail");
    }
    env
}

/// Valid manifests that begin with the first of these edits, in their encoded form; and one with a torn end.
pub fn manifests(edits: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let edit = |bytes: &Vec<u8>| VersionEdit::decode(bytes).expect("a valid edit");
    let made = |edits: &[Vec<u8>]| -> Result<Vec<u8>, Error> {
        let env = directory(&[]);
        let (first, later) = edits.split_first().expect("a manifest begins with a state");
        let mut log = ManifestLog::create(&env, Path::new(DIR), ID, edit(first))?;
        for later in later {
            log.append(edit(later), || ID.next())?;
        }
        let path = log.path();
        drop(log);
        let file = env.fs.open(&path, OpenOptions::read()).expect("the manifest is there");
        let len = file.len().expect("memory does not fail");
        Ok(read_range(&*file, 0, len as usize).expect("memory does not fail"))
    };
    let mut all: Vec<_> =
        (1..=edits.len()).map(|count| made(&edits[..count]).expect("memory does not fail")).collect();
    let mut torn = all[all.len() - 1].clone();
    torn.truncate(torn.len() - 25);
    all.push(torn);
    all
}

/// Valid texts of `CURRENT`.
pub fn currents() -> Vec<Vec<u8>> {
    [1, 7, 999_999, 1_000_000, u64::MAX].map(|id| current_text(FileId::new(id)).into_bytes()).to_vec()
}
