//! Plans: what runs, in which order, and what an earlier run has done already.

use super::*;
use crate::row::Row;
use crate::suites::plan::Part;

/// A suite of two rows, in a group that needs more disk than there is.
pub(super) static HUGE: Suite = Suite {
    name: "huge",
    disk_bytes_max: |_, group| if group == 0 { u64::MAX } else { 0 },
    parts: |_| {
        let rows = ["load", "reads"].map(|name| Row::time(name, ""));
        vec![Part::Program(rows.into(), |_| panic!("nothing of it may run"))]
    },
    ..Suite::EMPTY
};

pub(super) fn esker() -> &'static dyn Engine {
    crate::engines::find("esker").unwrap()
}

/// The first group of [`HUGE`].
pub(super) fn job() -> Job<'static> {
    Job { suite: &HUGE, engine: esker(), scale: Scale::Test, run: 1, group: 0, commit: "", memory_limit: "" }
}

pub(super) fn plan(dir: &std::path::Path) -> Plan {
    Plan {
        suite: &HUGE,
        engines: vec![esker()],
        scale: Scale::Test,
        runs: 2,
        dir: dir.to_path_buf(),
        timeout: Duration::from_secs(1),
        commit: String::new(),
        done: BTreeSet::new(),
        trace: true,
        trim: false,
        stop_at: None,
        parts: Vec::new(),
    }
}

#[test]
fn a_suite_without_disk_space_gives_rows_and_does_not_end_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan(dir.path());
    let mut errors = Vec::new();
    let mut keep = |record: &Record| {
        errors.push(record.error.clone().unwrap());
        Ok(())
    };
    run(&plan, &mut keep).unwrap();
    assert_eq!(errors.len(), 4);
    assert!(errors.iter().all(|error| error.contains("MB free")), "{errors:?}");
    let path = dir.path().to_string_lossy();
    assert!(!errors.iter().any(|error| error.contains(&*path)), "results name no path: {errors:?}");
}

#[test]
fn a_group_is_asked_for_the_disk_space_that_it_needs_itself() {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan(dir.path());
    assert!(no_disk_space(&plan, 0).unwrap().starts_with(NO_DISK_SPACE));
    assert_eq!(no_disk_space(&plan, 1), None);
    let badger = crate::suites::find("badger").unwrap();
    let [large, small] = [0, 1].map(|group| (badger.disk_bytes_max)(Scale::Seed, group));
    assert!(small < large, "{small} of 1 KB, {large} of 16 KB");
}

#[test]
fn another_engine_is_the_first_in_each_group_and_run_and_a_part_or_a_resumed_run_keeps_the_order() {
    let dir = tempfile::tempdir().unwrap();
    let engines = ["esker", "bbolt", "redb"].map(|name| crate::engines::find(name).unwrap()).to_vec();
    let suite = crate::suites::find("ycsb").unwrap();
    let whole = Plan { suite, engines, runs: 3, ..plan(dir.path()) };
    assert_eq!(suite.groups(whole.scale), 2);
    let names = |plan: &Plan| -> Vec<_> {
        todo(plan).into_iter().map(|(run, group, engine)| (run, group, engine.name())).collect()
    };
    let order: Vec<_> = names(&whole).iter().map(|(.., name)| *name).collect();
    let [a, b, c] = ["esker", "bbolt", "redb"];
    let [first, second, third] = [[a, b, c], [b, c, a], [c, a, b]];
    assert_eq!(order, [first, second, second, third, third, first].concat());
    let turn = |run, group, name| (run, group, name);
    assert_eq!(names(&whole)[3..6], [turn(1, 1, b), turn(1, 1, c), turn(1, 1, a)]);
    let engines = whole.engines.clone();
    let part = Plan { suite, engines, runs: 1, parts: vec![1], ..plan(dir.path()) };
    assert_eq!(names(&part), names(&whole)[3..6]);
    let is_done = |turn: &(u32, usize, &str)| turn.2 == b || *turn == (2, 1, a);
    let done = names(&whole).into_iter().filter(is_done);
    let done = done.map(|(run, group, name)| (name.to_owned(), run, group)).collect();
    let mut left = names(&whole);
    left.retain(|turn| !is_done(turn));
    assert_eq!(names(&Plan { done, ..whole }), left);
}

#[test]
fn what_ran_out_of_time_is_run_again_if_it_is_asked_for() {
    let record = |engine: &str, run, row: &str, error: Option<&str>| Record {
        suite: "huge".to_owned(),
        error: error.map(str::to_owned),
        ..crate::report::summary::tests::record(engine, row, run, error.is_none().then_some(1.0))
    };
    let all = [
        record("esker", 1, "load", None),
        record("esker", 1, "reads", Some("out of time after 2 s")),
        record("esker", 2, "load", Some("wrong answer: it lost an item")),
        record("esker", 2, "reads", Some("not run: load failed")),
        record("esker", 3, "load", Some("wrong answer: it lost an item")),
        record("esker", 3, "reads", None),
        record("lmdb", 1, "load", Some("out of time after 2 s")),
        record("lmdb", 1, "reads", Some("not run: load failed")),
        record("lmdb", 2, "load", None),
        record("redb", 1, "load", Some("the disk has 7 MB free; this part of the suite may need 9 MB")),
        record("redb", 1, "reads", Some("the disk has 7 MB free; this part of the suite may need 9 MB")),
        record("redb", 2, "load", Some("its memory could not be limited: no")),
        record("redb", 2, "reads", Some("its memory could not be limited: no")),
        record("redb", 3, "load", Some("filled the disk and was stopped")),
        record("redb", 3, "reads", Some("not run: load failed")),
    ];
    let kept = |retried: &[&dyn Engine], runs| {
        let mut records = all.to_vec();
        let done = take_done(&HUGE, Scale::Test, &mut records, (retried, runs), false);
        let done: Vec<_> = done.into_iter().map(|(engine, run, _)| (engine, run)).collect();
        (done, records.len())
    };
    let key = |engine: &str, run| (engine.to_owned(), run);
    let redb = crate::engines::find("redb").unwrap();
    // Of redb the runs 1 and 2 were refused.
    let [lmdb, of_redb] = [[key("lmdb", 1)].to_vec(), [key("redb", 3)].to_vec()];
    let whole = [[1, 2, 3].map(|run| key("esker", run)).to_vec(), lmdb.clone(), of_redb.clone()].concat();
    assert_eq!(kept(&[], 3), (whole, 10));
    let left = [[key("esker", 3)].to_vec(), lmdb.clone(), of_redb.clone()].concat();
    assert_eq!(kept(&[esker()], 3), (left, 6), "a failure is none of time");
    let left = [[key("esker", 2), key("esker", 3)].to_vec(), lmdb.clone(), of_redb].concat();
    assert_eq!(kept(&[esker()], 1), (left, 8), "what is not run now stays");
    let left = [[1, 2, 3].map(|run| key("esker", run)).to_vec(), lmdb].concat();
    assert_eq!(kept(&[redb], 3), (left, 8));
}

#[test]
fn a_finished_run_needs_no_records_of_rows_that_an_engine_does_not_support() {
    let record = |row| Record {
        suite: "huge".to_owned(),
        ..crate::report::summary::tests::record("lmdb", row, 1, Some(1.0))
    };
    let groups_done = |is_finished| {
        let mut records = vec![record("load")];
        take_done(&HUGE, Scale::Test, &mut records, (&[], 1), is_finished).len()
    };
    assert_eq!([false, true].map(groups_done), [0, 1]);
}
