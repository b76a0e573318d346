//! A short damage campaign, and deceived judges that must notice.
//!
//! The long form: `cargo run --release -p esker-sim -- damage --seconds 600`.

use std::sync::Arc;

use crate::memory;
use esker::{DumpOptions, DumpValue};
use esker_env::{Env, Fs, MemFs, OpenOptions};
use esker_sim::damage::report::describe;
use esker_sim::damage::{Edit, Figures, Files, Harm, Kind, RunOptions, harms, run};

const SEEDS: u64 = 32;
const OPS: usize = 250;

fn measured(work: &mut dyn FnMut()) -> usize {
    memory::peak_of(work)
}

/// Returns the violations that the judge finds with each seed.
fn complaints(seeds: u64, options: RunOptions) -> Vec<String> {
    (0..seeds).filter_map(|seed| run(seed, OPS, options).err()).map(|failure| failure.cause).collect()
}

#[test]
fn damaged_databases_are_read_right_or_not_at_all() {
    let mut total = Figures::default();
    for seed in 0..SEEDS {
        match run(seed, OPS, RunOptions { memory: Some(measured), ..RunOptions::default() }) {
            Ok(figures) => total.add(&figures),
            Err(failure) => panic!("{}", describe(seed, OPS, &failure)),
        }
    }
    println!("{total}");
    // Check that the campaign covers something.
    assert!(total.harms.values().sum::<u64>() > SEEDS && total.harms.len() > Kind::ALL.len() / 2, "{total}");
    assert!(total.refused > SEEDS / 6 && total.sound > 0 && total.repairs > SEEDS / 2, "{total}");
    assert!(total.losses > 0, "{total}");
}

#[test]
fn the_same_seed_gives_the_same_harms_and_figures() {
    for seed in 100..106 {
        let once = || (harms(seed, OPS), run(seed, OPS, RunOptions::default()));
        assert_eq!(once(), once(), "seed {seed}");
    }
}

#[test]
fn every_kind_of_harm_is_drawn() {
    let drawn = |seed| harms(seed, 100).unwrap_or_else(|failure| panic!("{}", failure.cause));
    let all: Vec<Harm> = (0..120).flat_map(drawn).collect();
    for kind in Kind::ALL {
        assert!(all.iter().any(|harm| harm.kind() == kind), "{} is never drawn", kind.name());
    }
}

#[test]
fn canary_a_state_that_is_one_commit_older_is_noticed() {
    let unharmed = RunOptions { harms: Some(|_| Vec::new()), ..RunOptions::default() };
    assert_eq!(complaints(6, unharmed), Vec::<String>::new());
    let found = complaints(6, RunOptions { hides_newest: true, ..unharmed });
    assert!(found.len() == 6 && found.iter().all(|text| text.contains("damage_judge.3")), "{found:#?}");
}

/// Changes the last byte of each value in uncompressed table blocks, with matching checksums.
fn forged(files: &Files) -> Vec<Harm> {
    let disk = MemFs::new();
    let dir = std::path::Path::new("forged");
    disk.create_dir_all(dir).expect("memory");
    let mut forged = Vec::new();
    for (name, bytes) in files.iter().filter(|(name, _)| name.ends_with(".sst")) {
        let path = dir.join(name);
        disk.open(&path, OpenOptions::create()).and_then(|file| file.write_all_at(bytes, 0)).expect("memory");
        let mut block = 0..0;
        let env = Env::simulated(Arc::new(disk.clone()), 0);
        let mut places = Vec::new();
        let shown = DumpOptions::default().env(env).dump(&path, |item| {
            let field = |name: &str| item.fields.iter().find(|field| field.0 == name).map(|field| &field.1);
            match (item.kind, field("bytes"), field("value")) {
                ("block", Some(DumpValue::Number(len)), _) => {
                    block = item.offset as usize..(item.offset + len) as usize;
                }
                ("put", _, Some(DumpValue::Bytes(value))) => places.push((block.clone(), value.clone())),
                _ => {}
            }
        });
        shown.expect("a sound table");
        let mut table = bytes.clone();
        for (block, value) in places.into_iter().filter(|(_, value)| value.len() > 8) {
            let (payload_end, crc_at) = (block.end - 5, block.end - 4);
            let stored = &table[block.start..payload_end];
            let at = stored.windows(value.len()).position(|window| window == value);
            // The byte after the payload is the compression.
            let Some(at) = at.filter(|_| table[payload_end] == 0) else { continue };
            table[block.start + at + value.len() - 1] ^= 1;
            // The checksum covers the table's salt, which is in the footer, and the position of the block.
            let salt = table.len() - 40..table.len() - 36;
            let seed = crc32c::crc32c(&table[salt]);
            let seed = crc32c::crc32c_append(seed, &(block.start as u64).to_le_bytes());
            let crc = crc32c::crc32c_append(seed, &table[block.start..crc_at]).to_le_bytes();
            table[crc_at..block.end].copy_from_slice(&crc);
        }
        if table != *bytes {
            let edit = Edit::Put(name.clone(), table);
            forged.push(Harm::new(Kind::Overwrite, format!("values in {name}"), edit));
        }
    }
    forged
}

#[test]
fn canary_values_that_are_others_and_have_fitting_checksums_are_noticed() {
    let found = complaints(16, RunOptions { harms: Some(forged), ..RunOptions::default() });
    // Not every database has live values in uncompressed tables.
    let wrong = found.iter().filter(|text| text.contains("damage_judge.3")).count();
    assert!(wrong >= 3, "{found:#?}");
}

/// Makes the first sector of each table unreadable.
fn with_unreadable_tables(files: &Files) -> Vec<Harm> {
    let tables = files.keys().filter(|name| name.ends_with(".sst")).cloned();
    tables.map(|name| Harm::new(Kind::Unreadable, name.clone(), Edit::Lose(name, 0..512))).collect()
}

#[test]
fn sectors_that_cannot_be_read_are_met_and_cost_what_they_held() {
    let mut total = Figures::default();
    for seed in 0..12 {
        let options = RunOptions { harms: Some(with_unreadable_tables), ..RunOptions::default() };
        total
            .add(&run(seed, OPS, options).unwrap_or_else(|failure| panic!("seed {seed}: {}", failure.cause)));
    }
    assert!(total.part + total.refused > 6 && total.repairs == 12 && total.losses > 12, "{total}");
}

/// Removes all tables.
fn without_tables(files: &Files) -> Vec<Harm> {
    let tables = files.keys().filter(|name| name.ends_with(".sst")).cloned();
    tables.map(|name| Harm::new(Kind::Delete, name.clone(), Edit::Delete(name))).collect()
}

#[test]
fn canary_unreported_losses_are_noticed() {
    let options = RunOptions { harms: Some(without_tables), ..RunOptions::default() };
    assert_eq!(complaints(16, options), Vec::<String>::new());
    let found = complaints(16, RunOptions { hides_losses: true, ..options });
    assert!(found.len() >= 4 && found.iter().all(|text| text.contains("damage_judge.7")), "{found:#?}");
}
