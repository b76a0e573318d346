//! Tests the possible states after a power loss.

use super::*;

fn steps(disk: &mut Disk, steps: impl IntoIterator<Item = Step>) {
    steps.into_iter().for_each(|step| disk.apply(&step));
}

fn create(file: FileNo, name: &str) -> Step {
    Step::Create { file, name: name.into() }
}

fn write(file: FileNo, offset: u64, byte: u8, len: usize) -> Step {
    Step::Write { file, offset, bytes: vec![byte; len] }
}

/// Returns the states after power losses with many seeds.
fn losses(disk: &Disk) -> BTreeSet<Files> {
    (0..3000).map(|seed| disk.power_loss(&mut Rng::with_seed(seed))).collect()
}

#[test]
fn what_was_synced_stays_and_what_came_later_may_go() {
    let mut disk = Disk::default();
    steps(&mut disk, [create(0, "a"), Step::SyncDir { began: 1 }, write(0, 0, 1, 8)]);
    // This sync started before the second write.
    steps(&mut disk, [write(0, 8, 2, 8), Step::SyncFile { file: 0, began: 3 }]);
    let left: BTreeSet<Vec<u8>> = losses(&disk).into_iter().map(|files| files["a"].clone()).collect();
    let expected = [vec![1; 8], [[1; 8], [0; 8]].concat(), [[1; 8], [2; 8]].concat()];
    assert_eq!(left, BTreeSet::from(expected));
    assert_eq!(disk.current()["a"], [[1; 8], [2; 8]].concat());
}

#[test]
fn sectors_tear_and_each_is_a_state_that_was() {
    let mut disk = Disk::durable(Files::from([("a".into(), vec![0; 1024])]), 0);
    steps(&mut disk, [write(0, 0, 1, 1024), write(0, 256, 2, 512)]);
    let mut seen = BTreeSet::new();
    for files in losses(&disk) {
        let bytes = &files["a"];
        // Both halves of a sector have the same age.
        let first = (bytes[0], bytes[300]);
        let second = (bytes[600], bytes[900]);
        assert!([(0, 0), (1, 1), (1, 2)].contains(&first), "{first:?}");
        assert!([(0, 0), (1, 1), (2, 1)].contains(&second), "{second:?}");
        seen.insert((first, second));
    }
    assert!(seen.len() >= 7, "tears of 512 bytes are tried: {seen:?}");
}

#[test]
fn a_cut_file_does_not_show_what_was_cut() {
    let mut disk = Disk::durable(Files::from([("a".into(), vec![7; 2048])]), 0);
    steps(&mut disk, [Step::SetLen { file: 0, len: 0 }, Step::SetLen { file: 0, len: 2048 }]);
    let left: BTreeSet<Vec<u8>> = losses(&disk).into_iter().map(|files| files["a"].clone()).collect();
    assert_eq!(left, BTreeSet::from([vec![7; 2048], vec![], vec![0; 2048]]));
}

#[test]
fn names_keep_their_order_and_renames_are_whole() {
    let mut disk = Disk::durable(Files::from([("current".into(), vec![1])]), 0);
    steps(&mut disk, [create(1, "tmp"), write(1, 0, 2, 1), Step::SyncFile { file: 1, began: 2 }]);
    steps(&mut disk, [Step::Rename { from: "tmp".into(), to: "current".into() }, create(2, "other")]);
    let left = losses(&disk);
    for files in &left {
        match files["current"][..] {
            [1] => {}
            [2] => assert!(!files.contains_key("tmp"), "the rename is whole"),
            ref other => panic!("current is {other:?}"),
        }
    }
    let names = |files: &Files| (files["current"][0], files.keys().cloned().collect::<Vec<_>>().join(" "));
    let names: BTreeSet<_> = left.iter().map(names).collect();
    assert_eq!(names.len(), 6, "three states of the rename, with and without the other file: {names:?}");
    disk.apply(&Step::SyncDir { began: 5 });
    assert!(losses(&disk).iter().all(|files| files.len() == 2 && files["current"] == [2]));
}
