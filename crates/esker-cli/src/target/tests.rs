//! Tests what names refer to, and which users may read an exported file.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use super::*;

#[test]
fn cli_target_2_devices_and_links_are_recognized() {
    // These are only examined; writing to special files is tested in a directory of its own.
    assert!(matches!(Target::look(Path::new("-")), Ok(Target::Standard)));
    assert!(matches!(Target::look(Path::new("/dev/null")), Ok(Target::Special(_))));
    assert!(matches!(Target::look(Path::new("/dev")), Err(Failure::Message(_))));
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    symlink("/dev/null", at("null")).unwrap();
    assert!(matches!(Target::look(&at("null")), Ok(Target::Special(_))));
    assert!(matches!(Target::look(&at("missing")), Ok(Target::Regular(_, None))));
    fs::write(at("file"), "").unwrap();
    assert!(matches!(Target::look(&at("file")), Ok(Target::Regular(_, Some(_)))));
    for (link, to) in [("link", "file"), ("dangling", "missing")] {
        symlink(to, at(link)).unwrap();
        assert!(
            matches!(Target::look(&at(link)), Err(Failure::Message(text)) if text.contains("a link")),
            "cli_target.2"
        );
    }
}

#[test]
fn cli_target_2_a_partial_file_is_removed_while_it_is_ours() {
    let dir = tempfile::tempdir().unwrap();
    let (target, name) = (dir.path().join("x"), dir.path().join("x.partial"));
    let create = || Partial::create(&target, None, dir.path());
    drop(create().unwrap());
    assert!(!name.exists() && !target.exists(), "cli_target.1");
    let mut partial = create().unwrap();
    partial.write_all(b"rows").unwrap();
    partial.rename().unwrap();
    fs::write(&name, "another's").unwrap();
    drop(partial);
    assert!(create().is_err());
    assert_eq!(fs::read(&name).unwrap(), b"another's", "cli_target.2");
    assert_eq!(fs::read(&target).unwrap(), b"rows");
}

#[test]
fn cli_target_3_an_export_can_be_read_by_no_more_people() {
    for (of_old, of_database, expected) in [
        (Some(0o640), 0o755, 0o640),
        (Some(0o666), 0o700, 0o666),
        (Some(0o6755), 0o700, 0o755),
        (None, 0o700, 0o600),
        (None, 0o750, 0o640),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let (old, database) = (dir.path().join("old"), dir.path().join("db"));
        fs::create_dir(&database).unwrap();
        fs::set_permissions(&database, fs::Permissions::from_mode(of_database)).unwrap();
        let existing = of_old.map(|mode| {
            fs::write(&old, "").unwrap();
            fs::set_permissions(&old, fs::Permissions::from_mode(mode)).unwrap();
            fs::metadata(&old).unwrap()
        });
        let partial = Partial::create(&old, existing.as_ref(), &database).unwrap();
        let mode = partial.output.metadata().unwrap().mode() & 0o7777;
        assert_eq!(mode, expected, "{of_old:?} {of_database:o}");
    }
}
