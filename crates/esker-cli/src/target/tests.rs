//! What names stand for, and who may do what with a file that export replaces.

use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use super::*;

#[test]
fn tg2_devices_are_told_from_files() {
    // Only looked at: what is made of it is tested where nothing of the system's can be harmed.
    let look = |name: &str| Target::look(Path::new(name));
    assert!(matches!(look("-"), Ok(Target::Standard)));
    for name in ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"] {
        assert!(matches!(look(name), Ok(Target::Standard)), "{name}");
    }
    assert!(matches!(look("/dev/null"), Ok(Target::Special(_))));
    assert!(matches!(look("/dev"), Err(Failure::Message(_))));
    let dir = tempfile::tempdir().unwrap();
    let link = dir.path().join("link");
    symlink("/dev/null", &link).unwrap();
    assert!(matches!(Target::look(&link), Ok(Target::Special(path)) if path == link));
    let missing = dir.path().join("missing");
    assert!(matches!(Target::look(&missing), Ok(Target::Regular(path, None)) if path == missing));
}

#[test]
fn tg2_a_file_behind_a_descriptor_is_appended_to() {
    let dir = tempfile::tempdir().unwrap();
    let (file, link) = (dir.path().join("file"), dir.path().join("link"));
    fs::write(&file, "before ").unwrap();
    let open = File::open(&file).unwrap();
    let number = open.as_raw_fd();
    symlink(format!("/dev/fd/{number}"), &link).unwrap();
    let names = [format!("/dev/fd/{number}"), format!("/proc/self/fd/{number}")].map(PathBuf::from);
    for name in names.iter().chain([&link]) {
        assert!(matches!(Target::look(name), Ok(Target::Special(path)) if path == *name), "TG2: {name:?}");
    }
    // One that is not open is no new file.
    assert!(matches!(Target::look(Path::new("/proc/self/fd/987654")), Ok(Target::Special(_))), "TG2");
    let mut special = Special::open(&file).unwrap();
    special.write_all(b"after").unwrap();
    assert_eq!(special.complete().unwrap(), 5);
    assert_eq!(fs::read(&file).unwrap(), b"before after", "TG2");
}

#[test]
fn tg2_a_partial_file_is_removed_while_it_is_ours() {
    let dir = tempfile::tempdir().unwrap();
    let (target, name) = (dir.path().join("x"), dir.path().join("x.partial"));
    drop(Partial::create(&target, None).unwrap());
    assert!(!name.exists() && !target.exists(), "TG1");
    let mut partial = Partial::create(&target, None).unwrap();
    partial.write_all(b"rows").unwrap();
    partial.rename().unwrap();
    fs::write(&name, "another's").unwrap();
    drop(partial);
    assert_eq!(fs::read(&name).unwrap(), b"another's", "TG2");
    assert_eq!(fs::read(&target).unwrap(), b"rows");
}

#[test]
fn tg3_nobody_reads_a_file_before_it_has_its_group() {
    let dir = tempfile::tempdir().unwrap();
    let old = dir.path().join("old");
    fs::write(&old, "").unwrap();
    fs::set_permissions(&old, fs::Permissions::from_mode(0o666)).unwrap();
    let meta = fs::metadata(&old).unwrap();
    let new = create_new(&dir.path().join("new"), Some(&meta)).unwrap();
    assert_eq!(new.metadata().unwrap().mode() & 0o777, 0o600, "TG3");
    set_group_and_mode(&new, &meta, false).unwrap();
    assert_eq!(new.metadata().unwrap().mode() & 0o777, 0o666, "TG3");
}

#[test]
fn tg3_tg4_rights_are_never_more() {
    let cases = [
        // Mode; what is left of it with its group, without, and in the place of a file with a list.
        (0o640, [0o640, 0o600, 0o600]),
        (0o664, [0o664, 0o604, 0o600]),
        (0o604, [0o604, 0o600, 0o600]),
        (0o4755, [0o755, 0o705, 0o700]),
        (0o2775, [0o775, 0o705, 0o700]),
        (0o6711, [0o711, 0o701, 0o700]),
        (0o1777, [0o777, 0o707, 0o700]),
    ];
    for (mode, expected) in cases {
        let left = [rights(mode, true, false), rights(mode, false, false), rights(mode, true, true)];
        assert_eq!(left, expected, "TG3, TG4: {mode:o}");
        assert_eq!(rights(mode, false, true), expected[2], "TG3, TG4: {mode:o}");
    }
}

#[test]
fn tg4_nobody_is_given_a_program_that_runs_as_the_exporter() {
    let dir = tempfile::tempdir().unwrap();
    let old = dir.path().join("old");
    fs::write(&old, "").unwrap();
    fs::set_permissions(&old, fs::Permissions::from_mode(0o6755)).unwrap();
    let partial = Partial::create(&old, Some(&fs::metadata(&old).unwrap())).unwrap();
    assert_eq!(partial.output.metadata().unwrap().mode() & 0o7777, 0o755, "TG4");
}

/// A list as the kernel has it: everything for the owner; what is given here for a user of this number, for the group, for
/// the mask and for others.
fn list(user: u32, rights: [u8; 4]) -> Vec<u8> {
    let [named, group, mask, others] = rights;
    let nobody = u32::MAX;
    let entries =
        [(1, 6, nobody), (2, named, user), (4, group, nobody), (16, mask, nobody), (32, others, nobody)];
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (kind, may, of) in entries {
        bytes.extend(u16::to_le_bytes(kind));
        bytes.extend(u16::from(may).to_le_bytes());
        bytes.extend(of.to_le_bytes());
    }
    bytes
}

/// Gives a file or a directory a list; false if there are none here, which is said.
fn give(path: &Path, name: &str, list: &[u8]) -> bool {
    match rustix::fs::setxattr(path, name, list, rustix::fs::XattrFlags::empty()) {
        Err(Errno::NOTSUP) => {
            println!("no access control lists here: only `rights` and its tests say what is made of them");
            false
        }
        given => {
            given.expect("the test may");
            true
        }
    }
}

#[test]
fn tg3_the_listed_lose_what_cannot_be_kept_and_gain_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let old = dir.path().join("old");
    fs::write(&old, "").unwrap();
    // One user may read, the group may not, although the mode says so; another list gives others what a user has not.
    for (may, mode) in [([4, 0, 4, 0], 0o640), ([0, 4, 4, 4], 0o644)] {
        if !give(&old, ACCESS_LIST, &list(12_345, may)) {
            assert!(!has_access_list(&old));
            return;
        }
        let meta = fs::metadata(&old).unwrap();
        assert_eq!(meta.mode() & 0o777, mode);
        let partial = Partial::create(&old, Some(&meta)).unwrap();
        assert_eq!(partial.output.metadata().unwrap().mode() & 0o777, 0o600, "TG3");
        assert!(!has_access_list(&partial.path), "TG3");
    }
}

#[test]
fn tg3_a_directory_gives_nobody_what_the_file_did_not() {
    let dir = tempfile::tempdir().unwrap();
    let old = dir.path().join("old");
    fs::write(&old, "").unwrap();
    fs::set_permissions(&old, fs::Permissions::from_mode(0o640)).unwrap();
    if !give(dir.path(), "system.posix_acl_default", &list(12_345, [6, 6, 6, 0])) {
        return;
    }
    let meta = fs::metadata(&old).unwrap();
    assert!(has_access_list(&{
        let other = dir.path().join("other");
        fs::write(&other, "").unwrap();
        other
    }));
    let partial = Partial::create(&old, Some(&meta)).unwrap();
    assert!(!has_access_list(&partial.path), "TG3");
    assert_eq!(partial.output.metadata().unwrap().mode() & 0o777, 0o640, "TG3");
}
