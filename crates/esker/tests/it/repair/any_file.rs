//! Every kind of file, flipped, cut, lost, replaced and swapped: which damage costs how much.

use esker_env::Fs;

use super::judge::{assert_not_overreported, judge, repair};
use crate::common::damage::{Golden, LOGGED, cut, overwrite, path, places, replace};

#[test]
fn an_undamaged_database_comes_out_whole() {
    for golden in
        [Golden::merged(), Golden::layered(), Golden::twins(), Golden::killed(), Golden::segmented()]
    {
        let (report, found) = repair(&golden.copy()).unwrap();
        assert!(found == golden.newest);
        assert!(report.losses.is_empty(), "{:#?}", report.losses);
        assert!(report.tables > 0 && report.commits >= LOGGED as u64 && report.entries > 0, "{report:?}");
    }
}

#[test]
fn a_flipped_bit_anywhere() {
    let golden = Golden::layered();
    let mut repairs = 0;
    for name in &golden.files {
        let bytes = golden.read(name);
        for at in places(bytes.len(), 48) {
            let what = format!("bit {} of byte {at} of {name}", at % 8);
            let report = judge(&golden, &what, |fs| {
                overwrite(fs, name, at, &[bytes[at] ^ 1 << (at % 8)]);
            });
            assert_not_overreported(&golden, &what, name, &report);
            repairs += 1;
        }
    }
    println!("{repairs} repairs after a flipped bit");
}

#[test]
fn cut_at_any_length() {
    let golden = Golden::layered();
    let mut repairs = 0;
    for name in &golden.files {
        let bytes = golden.read(name);
        for len in places(bytes.len(), 24) {
            let what = format!("{name} cut to {len} of {}", bytes.len());
            let report = judge(&golden, &what, |fs| cut(fs, name, len));
            // A manifest cut between edits is an earlier manifest, and its tables are missing.
            if !name.starts_with("MANIFEST-") {
                assert_not_overreported(&golden, &what, name, &report);
            }
            if name == golden.last_segment() {
                let lost = report.losses.iter().filter_map(|loss| loss.commits);
                let lost: u64 = lost.map(|(first, last)| last + 1 - first).sum();
                assert_eq!(lost, golden.commits_behind(name, len) as u64, "{what}: {report:#?}");
                assert!(!report.losses.is_empty(), "{what}");
            }
            repairs += 1;
        }
    }
    println!("{repairs} repairs after a cut");
}

#[test]
fn each_file_lost_or_foreign() {
    for golden in [Golden::merged(), Golden::layered(), Golden::twins()] {
        for name in &golden.files {
            let what = format!("loss of {name}");
            let report = judge(&golden, &what, |fs| fs.remove_file(&path(name)).unwrap());
            assert_not_overreported(&golden, &what, name, &report);
            for bytes in [Vec::new(), vec![0; 300], b"some text\n".repeat(40)] {
                let what = format!("{} strange bytes as {name}", bytes.len());
                let report = judge(&golden, &what, |fs| replace(fs, name, &bytes));
                assert_not_overreported(&golden, &what, name, &report);
            }
        }
    }
}

#[test]
fn any_two_files_swapped() {
    for golden in [Golden::layered(), Golden::twins(), Golden::segmented()] {
        for (i, a) in golden.files.iter().enumerate() {
            for b in &golden.files[i + 1..] {
                judge(&golden, &format!("{a} and {b} swapped"), |fs| {
                    replace(fs, a, &golden.read(b));
                    replace(fs, b, &golden.read(a));
                });
            }
        }
    }
}

#[test]
fn everything_but_the_data_lost_at_once() {
    let golden = Golden::layered();
    judge(&golden, "CURRENT, manifest, OPTIONS and LOCK lost", |fs| {
        for name in golden.files.iter().filter(|n| !n.ends_with(".sst") && !n.ends_with(".wal")) {
            fs.remove_file(&path(name)).unwrap();
        }
    });
}
