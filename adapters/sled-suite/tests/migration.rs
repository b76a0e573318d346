//! Data of sled comes over by `export` and `import`, and its checksum shows that all of it has.

#[test]
fn trees_of_sled_are_imported() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let old = sled::open(from.path()).unwrap();
    for number in 0..2000_u32 {
        old.insert(number.to_be_bytes(), vec![number as u8; number as usize % 300]).unwrap();
    }
    for name in [&b"names"[..], b"\xff\x00%", b"empty"] {
        old.open_tree(name).unwrap();
    }
    old.open_tree("names").unwrap().insert("ann", "1").unwrap();

    let new = esker_sled::open(to.path()).unwrap();
    new.import(old.export());
    assert_eq!(new.checksum().unwrap(), old.checksum().unwrap());
    drop(new);
    let new = esker_sled::open(to.path()).unwrap();
    assert!(new.was_recovered());
    assert_eq!(new.checksum().unwrap(), old.checksum().unwrap());
    assert_eq!(new.len(), 2000);
    let (mut names, mut old_names): (Vec<_>, Vec<_>) = (
        new.tree_names().iter().map(|name| name.to_vec()).collect(),
        old.tree_names().iter().map(|name| name.to_vec()).collect(),
    );
    names.sort();
    old_names.sort();
    assert_eq!(names, old_names);
    assert_eq!(new.open_tree("names").unwrap().get("ann").unwrap().unwrap(), b"1");
    new.esker().check().unwrap();
}
