//! Tests of the manifest: crashes, damage, replacement.

use std::sync::Arc;

use esker_env::{FaultAction, FaultFs, FaultRule, MemFs, OpKind};

use super::super::salvage::salvage;
use super::*;
use crate::encoding::Compression;

fn world() -> (MemFs, Env, PathBuf) {
    let fs = MemFs::new();
    let dir = PathBuf::from("/db");
    let env = Env::simulated(Arc::new(fs.clone()), 1);
    env.fs.create_dir_all(&dir).unwrap();
    (fs, env, dir)
}

fn wal_from(n: u64) -> VersionEdit {
    VersionEdit { wal_from: Some(n), ..VersionEdit::default() }
}

fn recovered(fs: MemFs, dir: &Path) -> Option<u64> {
    let env = Env::simulated(Arc::new(fs), 1);
    ManifestLog::recover(&env, dir).unwrap().and_then(|(_, state)| state.wal_from)
}

fn no_new_file() -> FileId {
    panic!("no new manifest expected")
}

#[test]
fn manifest_log_1_every_synced_edit_survives_every_crash() {
    let (fs, env, dir) = world();
    env.fs.sync_dir(Path::new("/")).unwrap();
    for seed in 0..50 {
        assert!(recovered(fs.crash(seed), &dir).is_none());
    }
    let mut log = ManifestLog::create(&env, &dir, FileId::new(1), wal_from(0)).unwrap();
    for n in 1..30 {
        log.append(wal_from(n), no_new_file).unwrap();
        for seed in 0..10 {
            assert_eq!(recovered(fs.crash(seed), &dir), Some(n));
        }
    }
}

/// Wrong states of manifests after power losses during an append, at each of its syncs and in many ways.
fn wrong_after_losses_in_an_append() -> Vec<String> {
    let mut wrong = Vec::new();
    for sync in 1..=2 {
        let (fs, _, dir) = world();
        let faults = FaultFs::new(Arc::new(fs.clone()));
        let env = Env::simulated(Arc::new(faults.clone()), 1);
        let mut log = ManifestLog::create(&env, &dir, FileId::new(1), wal_from(1)).unwrap();
        log.append(wal_from(2), no_new_file).unwrap();
        let fail = FaultAction::Fail(std::io::ErrorKind::Other);
        faults.add(FaultRule::new(&[OpKind::SyncData], fail).nth(sync));
        let oldest = if log.append(wal_from(3), no_new_file).is_ok() { 3 } else { 2 };
        for seed in 0..300 {
            let left = Env::simulated(Arc::new(fs.crash(seed)), 1);
            let found = ManifestLog::recover(&left, &dir);
            let found = found.map(|found| found.and_then(|(_, state)| state.wal_from));
            if !matches!(found, Ok(Some(number)) if (oldest..=3).contains(&number)) {
                wrong.push(format!("sync {sync}, seed {seed}: {found:?}"));
            }
        }
    }
    wrong
}

#[test]
fn manifest_log_5_a_power_loss_in_the_middle_of_an_append_is_no_damage() {
    assert_eq!(wrong_after_losses_in_an_append(), Vec::<String>::new());
}

#[test]
fn manifest_log_3_after_a_failed_append_a_new_manifest_settles_it() {
    let (fs, _, dir) = world();
    let faults = FaultFs::new(Arc::new(fs.clone()));
    let env = Env::simulated(Arc::new(faults.clone()), 1);
    let mut log = ManifestLog::create(&env, &dir, FileId::new(1), wal_from(1)).unwrap();
    let fail = FaultAction::Fail(std::io::ErrorKind::Other);
    faults.add(FaultRule::new(&[OpKind::SyncData], fail).on_path("MANIFEST"));
    assert!(log.append(wal_from(2), no_new_file).is_err());
    assert!(log.is_broken());
    log.append(wal_from(3), || FileId::new(5)).unwrap();
    assert_eq!((log.id(), recovered(fs.crash_strict(), &dir)), (FileId::new(5), Some(3)));
    assert!(!env.fs.exists(&dir.join(manifest_name(FileId::new(1)))).unwrap());
}

/// The replacement of a manifest is interrupted at each call in turn, and followed by many power losses.
#[test]
fn manifest_log_2_a_manifest_that_replaces_another_is_durable_before_it_is_named() {
    let mut ended = 0;
    for call in 1.. {
        let (fs, _, dir) = world();
        let faults = FaultFs::new(Arc::new(fs.clone()));
        let env = Env::simulated(Arc::new(faults.clone()), 1);
        let log = ManifestLog::create(&env, &dir, FileId::new(1), wal_from(1)).unwrap();
        let mut log = log.replaced_from(0);
        let mut n = 1;
        while log.writer.as_ref().unwrap().size() <= REWRITE_FACTOR * log.state_bytes {
            n += 1;
            log.append(wal_from(n), no_new_file).unwrap();
        }
        let fail = FaultAction::Fail(std::io::ErrorKind::Other);
        faults.add(FaultRule::new(&OpKind::CHANGES, fail).nth(call).forever());
        let replaced = log.append(wal_from(n + 1), || FileId::new(5));
        // One loss in 32 loses only the name.
        for seed in 0..300 {
            let left = recovered(fs.crash(seed), &dir);
            let may_be = if replaced.is_ok() { n + 1..=n + 1 } else { n..=n + 1 };
            assert!(
                left.is_some_and(|left| may_be.contains(&left)),
                "manifest_log.2: call {call}, seed {seed}: {left:?}"
            );
        }
        if replaced.is_ok() && !log.is_broken() && faults.fired() == 0 {
            break;
        }
        ended += 1;
    }
    assert!(ended >= 8, "{ended} calls");
}

#[test]
fn a_settled_manifest_is_gone_on_with_and_another_is_not() {
    let (fs, env, dir) = world();
    let mut log = ManifestLog::create(&env, &dir, FileId::new(1), wal_from(1)).unwrap();
    log.append(wal_from(2), no_new_file).unwrap();
    let path = log.path();
    drop(log);
    for n in 3..20 {
        let bytes = env.fs.file_size(&path).unwrap();
        let found = ManifestLog::find(&env, &dir).unwrap().unwrap();
        assert_eq!(found.state.wal_from, Some(n - 1));
        let mut log = found.go_on(&env, &dir).unwrap().expect("it ends in a marker");
        assert_eq!(env.fs.file_size(&path).unwrap(), bytes, "nothing is written for that");
        log.append(wal_from(n), no_new_file).unwrap();
        for seed in 0..20 {
            assert_eq!(recovered(fs.crash(seed), &dir), Some(n), "manifest_log.1");
        }
    }
    // Without the last marker.
    let file = env.fs.open(&path, OpenOptions::write()).unwrap();
    file.set_len(file.len().unwrap() - 20).unwrap();
    let found = ManifestLog::find(&env, &dir).unwrap().unwrap();
    assert_eq!(found.state.wal_from, Some(19));
    assert!(found.go_on(&env, &dir).unwrap().is_none());
}

#[test]
fn a_long_log_is_replaced_by_its_state() {
    let (fs, env, dir) = world();
    let mut log = ManifestLog::create(&env, &dir, FileId::new(1), wal_from(0)).unwrap();
    let mut next = 1;
    for n in 1..4000 {
        log.append(wal_from(n), || {
            next += 1;
            FileId::new(next)
        })
        .unwrap();
        if n % 500 == 0 {
            assert_eq!(recovered(fs.crash(n), &dir), Some(n));
        }
    }
    assert!(next > 1, "the log was replaced");
    assert_eq!(recovered(fs.crash_strict(), &dir), Some(3999));
}

#[test]
fn a_damaged_current_or_manifest_is_a_typed_error_or_the_truth() {
    let (fs, env, dir) = world();
    let mut log = ManifestLog::create(&env, &dir, FileId::new(1), wal_from(0)).unwrap();
    log.append(wal_from(7), no_new_file).unwrap();
    drop(log);
    for name in [CURRENT.to_owned(), manifest_name(FileId::new(1))] {
        let path = dir.join(&name);
        let len = env.fs.file_size(&path).unwrap();
        for at in 0..len {
            let damaged = fs.crash_keep_all();
            let env = Env::simulated(Arc::new(damaged.clone()), 1);
            let file = env.fs.open(&path, OpenOptions::write()).unwrap();
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 0x41], at).unwrap();
            match ManifestLog::recover(&env, &dir) {
                Err(Error::Corrupt { .. } | Error::UnsupportedVersion { .. }) => {}
                // manifest_log.5: only the marker can read as a torn tail.
                Ok(Some((_, state))) if name != CURRENT => assert_eq!(state.wal_from, Some(7), "byte {at}"),
                other => panic!("{name} byte {at}: {other:?}"),
            }
        }
    }
}

/// Stale records that recovery takes, which it must not. Some blocks of the manifest hold what an earlier
/// manifest of the same shape had there: between any two of its records, and from any record after its first
/// edit on, to its end.
fn stale_records_taken() -> Vec<String> {
    let (_, env, dir) = world();
    let path = |id: u64| dir.join(manifest_name(FileId::new(id)));
    let written = |id: u64, first: u64| {
        let mut log = ManifestLog::create(&env, &dir, FileId::new(id), wal_from(first)).unwrap();
        for n in first + 1..first + 6 {
            log.append(wal_from(n), no_new_file).unwrap();
        }
        drop(log);
        let file = env.fs.open(&path(id), OpenOptions::read()).unwrap();
        esker_env::read_range(&*file, 0, file.len().unwrap() as usize).unwrap()
    };
    let (stale, own) = (written(1, 1), written(2, 51));
    let mut reader = recordio::Reader::options().env(&env).open(path(2)).unwrap();
    let mut places = Vec::new();
    while reader.next().unwrap().is_some() {
        places.push(reader.record_offset() as usize);
    }
    // The header, the state, and five edits, each followed by a marker.
    assert!(places.len() == 13 && stale.len() == own.len() && stale != own, "{places:?}");

    let recovered = |bytes: &[u8]| {
        let file = env.fs.open(&path(2), OpenOptions::create()).unwrap();
        file.write_all_at(bytes, 0).unwrap();
        ManifestLog::recover(&env, &dir).map(|found| found.and_then(|(_, state)| state.wal_from))
    };
    let mut taken = Vec::new();
    for (records, &start) in places.iter().enumerate() {
        for &end in &places[records + 1..] {
            let found = recovered(&[&own[..start], &stale[start..end], &own[end..]].concat());
            if !found.as_ref().is_err_and(Error::is_corrupt) {
                taken.push(format!("before {end}: from {start} on, {found:?}"));
            }
        }
        if records >= 2 {
            let newest = 51 + (records as u64 - 2) / 2;
            let found = recovered(&[&own[..start], &stale[start..]].concat());
            if !matches!(found, Ok(Some(number)) if number == newest) {
                taken.push(format!("at the end: from {start} on, {found:?}"));
            }
        }
    }
    taken
}

#[test]
fn manifest_log_1_records_of_an_earlier_manifest_do_not_count() {
    assert_eq!(stale_records_taken(), Vec::<String>::new());
}

#[test]
fn a_compressed_edit_is_damage() {
    let (_, env, dir) = world();
    drop(ManifestLog::create(&env, &dir, FileId::new(1), wal_from(3)).unwrap());
    let path = dir.join(manifest_name(FileId::new(1)));
    for &codec in Compression::ALL {
        let mut writer = recordio::Writer::options().env(&env).compression(codec).create(&path).unwrap();
        writer.append(b"esker manifest\x01").unwrap();
        // One field repeated: it compresses well, and decodes.
        writer.append(&wal_from(4).encode().repeat(200)).unwrap();
        mark(&mut writer).unwrap();
        assert_eq!(writer.size() > 400, codec == Compression::None, "{}", codec.name());
        writer.finish().unwrap();
        let (recovered, salvaged) = (ManifestLog::recover(&env, &dir), salvage(&env, &path).unwrap());
        match recovered {
            Ok(Some((_, state))) => {
                assert_eq!((codec, state.wal_from), (Compression::None, Some(4)));
                assert!(salvaged.complete);
            }
            Err(error) => {
                assert!(codec != Compression::None && error.is_corrupt(), "{}: {error}", codec.name());
                assert!(error.to_string().contains("cannot expand to"), "{error}");
                assert!(!salvaged.complete && salvaged.state.is_none(), "{}", codec.name());
            }
            Ok(None) => panic!("CURRENT is there"),
        }
    }
}

#[test]
fn manifest_log_2_markers_alone_are_no_state() {
    let (_, env, dir) = world();
    drop(ManifestLog::create(&env, &dir, FileId::new(1), wal_from(3)).unwrap());
    let path = dir.join(manifest_name(FileId::new(1)));
    for edits in [0, 1] {
        let mut writer = recordio::Writer::options().env(&env).create(&path).unwrap();
        writer.append(b"esker manifest\x01").unwrap();
        mark(&mut writer).unwrap();
        for _ in 0..edits {
            writer.append(&wal_from(4).encode()).unwrap();
        }
        writer.finish().unwrap();
        match ManifestLog::recover(&env, &dir) {
            Ok(Some((_, state))) => assert_eq!((edits, state.wal_from), (1, Some(4))),
            other => assert!(edits == 0 && other.unwrap_err().is_corrupt()),
        }
    }
}

#[test]
fn manifest_salvage_2_a_last_record_that_is_none_is_damage_and_no_torn_end() {
    let (_, env, dir) = world();
    let mut log = ManifestLog::create(&env, &dir, FileId::new(1), wal_from(1)).unwrap();
    log.append(wal_from(2), no_new_file).unwrap();
    let path = log.path();
    drop(log);
    let file = env.fs.open(&path, OpenOptions::write()).unwrap();
    let mut bytes = esker_env::read_range(&*file, 0, file.len().unwrap() as usize).unwrap();
    // Without the marker. The edit claims to be compressed to nothing, with correct checksums.
    let header = 20;
    bytes.truncate(bytes.len() - header);
    let at = bytes.len() - wal_from(2).encode().len() - header;
    bytes[at + 3..at + 8].copy_from_slice(&[1, 0, 0, 0, 0]);
    recordio::fuzzing::repair(&mut bytes);
    file.write_all_at(&bytes, 0).unwrap();
    file.set_len(bytes.len() as u64).unwrap();
    assert!(ManifestLog::recover(&env, &dir).unwrap_err().is_corrupt());
    let found = crate::manifest::salvage::salvage(&env, &path).unwrap();
    assert_eq!((found.complete, found.damage.len(), found.torn), (false, 1, None));
    assert_eq!(found.state.unwrap().wal_from, Some(1));
}

#[test]
fn edits_outside_of_the_pieces_that_cannot_be_read_are_kept() {
    let (fs, _, dir) = world();
    let faults = FaultFs::new(Arc::new(fs));
    let env = Env::simulated(Arc::new(faults.clone()), 1);
    let mut log = ManifestLog::create(&env, &dir, FileId::new(1), wal_from(0)).unwrap();
    let mut ends = vec![log.writer.as_ref().unwrap().size()];
    for n in 1..600 {
        let edit = VersionEdit { removed: vec![FileId::new(n)], ..wal_from(n) };
        log.append(edit, no_new_file).unwrap();
        ends.push(log.writer.as_ref().unwrap().size());
    }
    let path = log.path();
    drop(log);
    let sound = salvage(&env, &path).unwrap();
    assert_eq!((sound.complete, sound.edits, sound.removed.len()), (true, 600, 599));
    for lost in [400_usize, 599] {
        let (start, end) = (ends[lost - 1], ends[lost]);
        let fails = FaultAction::Fail(std::io::ErrorKind::Other);
        faults.add(FaultRule::new(&[OpKind::Read], fails).on_bytes(start..end).forever());
        assert!(matches!(ManifestLog::recover(&env, &dir), Err(Error::Io { .. })));
        let found = salvage(&env, &path).unwrap();
        faults.clear();
        // The marker, which ends each edit, may be lost with it.
        let marker = 20;
        let pieces = start / 4096 * 4096..end.next_multiple_of(4096);
        let is_kept = |n: &usize| ends[*n] - marker <= pieces.start || ends[*n - 1] >= pieces.end;
        let kept: Vec<u64> = (1..600).filter(is_kept).map(|n| n as u64).collect();
        assert!(kept.len() > 300 && !kept.contains(&(lost as u64)), "{lost}: {}", kept.len());
        let removed: Vec<u64> = found.removed.iter().map(|file| file.get()).collect();
        assert_eq!(removed, kept, "{lost}");
        assert_eq!(found.state.unwrap().wal_from, kept.last().copied(), "{lost}");
        assert_eq!(
            (found.complete, found.damage.len(), found.torn),
            (false, 1, None),
            "manifest_salvage.2: {lost}"
        );
        let damage = found.damage[0].to_string();
        assert!(damage.contains("can be read: injected fault"), "{damage}");
    }
    let fails = FaultAction::Fail(std::io::ErrorKind::Other);
    faults.add(FaultRule::new(&[OpKind::Read], fails).on_bytes(0..1).forever());
    assert!(matches!(salvage(&env, &path), Err(Error::Io { .. })));
}

#[test]
fn errors_tell_where_in_the_file_the_damaged_field_is() {
    let (_, env, dir) = world();
    drop(ManifestLog::create(&env, &dir, FileId::new(1), wal_from(0)).unwrap());
    let path = dir.join(manifest_name(FileId::new(1)));
    // A sound field followed by an unknown one.
    let unknown = [&wal_from(4).encode()[..], &[99]].concat();
    // The content of the first record follows the headers of the file and of the record, 20 bytes each.
    let cases: [(&[u8], &[u8], u64); 3] = [
        (b"something else", b"", 40),
        // A number that does not end.
        (b"esker manifest\x80", b"", 40 + 15),
        (b"esker manifest\x01", &unknown, 40 + 15 + 20 + unknown.len() as u64),
    ];
    for (header, edit, expected) in cases {
        let mut writer = recordio::Writer::options().env(&env).create(&path).unwrap();
        writer.append(header).unwrap();
        writer.append(edit).unwrap();
        writer.finish().unwrap();
        let refused = ManifestLog::recover(&env, &dir).unwrap_err();
        let found = salvage(&env, &path).unwrap();
        for error in [&refused, &found.damage[0]] {
            let is_there = matches!(error, Error::Corrupt { offset, .. } if *offset == expected);
            assert!(is_there, "{expected}: {error}");
        }
    }
}

#[test]
fn a_newer_format_and_format_0_are_refused() {
    for version in [0_u8, 2] {
        let (_, env, dir) = world();
        drop(ManifestLog::create(&env, &dir, FileId::new(1), wal_from(0)).unwrap());
        let path = dir.join(manifest_name(FileId::new(1)));
        let mut writer = recordio::Writer::options().env(&env).create(&path).unwrap();
        writer.append(&[&b"esker manifest"[..], &[version]].concat()).unwrap();
        writer.append(&wal_from(5).encode()).unwrap();
        writer.finish().unwrap();
        for error in [ManifestLog::recover(&env, &dir).unwrap_err(), salvage(&env, &path).unwrap_err()] {
            match error {
                Error::UnsupportedVersion { found, supported: 1, .. } => {
                    assert_eq!(found, u32::from(version));
                }
                error => panic!("{version}: {error}"),
            }
        }
    }
}

#[test]
fn manifest_log_3_a_replacement_that_panicked_is_settled_without_its_edit() {
    let (fs, _, dir) = world();
    let faults = FaultFs::new(Arc::new(fs.clone()));
    let env = Env::simulated(Arc::new(faults.clone()), 1);
    let created = ManifestLog::create(&env, &dir, FileId::new(1), wal_from(1)).unwrap();
    let mut log = created.replaced_from(0);
    // The last call of a replacement, when the new manifest is current. The caller does not learn of it.
    faults.add(FaultRule::new(&[OpKind::Remove], FaultAction::Panic).on_path("MANIFEST"));
    let mut next = 2;
    while faults.fired() == 0 {
        let (edit, id) = (wal_from(next), FileId::new(next));
        let append = std::panic::AssertUnwindSafe(|| log.append(edit, || id));
        assert_eq!(std::panic::catch_unwind(append).is_err(), faults.fired() > 0);
        next += 1;
    }
    assert!(log.is_broken(), "manifest_log.3");
    assert_eq!(log.state().wal_from, Some(next - 2), "not the edit that panicked");
    log.heal(|| FileId::new(next)).unwrap();
    assert_eq!(recovered(fs.crash_strict(), &dir), Some(next - 2), "manifest_log.3");
}

#[test]
fn manifest_log_3_an_append_that_panicked_is_settled_by_a_new_manifest() {
    let (fs, _, dir) = world();
    let faults = FaultFs::new(Arc::new(fs.clone()));
    let env = Env::simulated(Arc::new(faults.clone()), 1);
    let mut log = ManifestLog::create(&env, &dir, FileId::new(1), wal_from(1)).unwrap();
    // The first sync is that of the marker before the edit.
    for nth in [1, 2] {
        faults.add(FaultRule::new(&[OpKind::SyncData], FaultAction::Panic).nth(nth));
        let append = std::panic::AssertUnwindSafe(|| log.append(wal_from(10 + nth), no_new_file));
        assert!(std::panic::catch_unwind(append).is_err());
        assert!(log.is_broken(), "manifest_log.3");
        let id = FileId::new(10 + nth);
        log.append(wal_from(20 + nth), || id).unwrap();
        assert_eq!((log.id(), log.state().wal_from), (id, Some(20 + nth)), "manifest_log.3");
        assert_eq!(recovered(fs.crash_strict(), &dir), Some(20 + nth), "manifest_log.3");
    }
}
