//! Tests: a model of bytes decides what a file holds, and the directory below stays what it was.

use super::*;
use crate::{MemFs, Random, SeededRandom, read_range};

const DIR: &str = "db";

fn below() -> Arc<MemFs> {
    let fs = Arc::new(MemFs::new());
    fs.create_dir_all(DIR.as_ref()).unwrap();
    for (name, content) in [("a", vec![7; 10_000]), ("b", vec![8; 10])] {
        let file = fs.open(&Path::new(DIR).join(name), OpenOptions::create_new()).unwrap();
        file.write_all_at(&content, 0).unwrap();
    }
    fs
}

fn content(fs: &dyn Fs, name: &str) -> Vec<u8> {
    let file = fs.open(&Path::new(DIR).join(name), OpenOptions::read()).unwrap();
    read_range(&*file, 0, file.len().unwrap() as usize).unwrap()
}

fn all(fs: &dyn Fs) -> Vec<(String, Vec<u8>)> {
    let mut names = fs.list_dir(DIR.as_ref()).unwrap();
    names.sort();
    names.into_iter().map(|name| (name.clone(), content(fs, &name))).collect()
}

#[test]
fn overlay_1_a_changed_file_is_what_a_model_says_and_the_one_below_is_unchanged() {
    for seed in 0..50 {
        let (random, fs) = (SeededRandom::new(seed), below());
        let before = all(&*fs);
        let overlay = OverlayFs::new(fs.clone(), DIR.as_ref());
        let file = overlay.open(&Path::new(DIR).join("a"), OpenOptions::write()).unwrap();
        let mut model = content(&*fs, "a");
        for step in 0..60_u64 {
            let [at, len] = [0, 0].map(|_: u64| (random.next_u64() % 20_000) as usize);
            match random.next_u64() % 4 {
                0 => {
                    file.set_len(at as u64).unwrap();
                    model.resize(at, 0);
                }
                1 => {
                    file.allocate(at as u64, len as u64).unwrap();
                    model.resize(model.len().max(at + len), 0);
                }
                kind => {
                    let bytes = vec![if kind == 2 { 0 } else { step as u8 }; len];
                    file.write_all_at(&bytes, at as u64).unwrap();
                    if len > 0 {
                        model.resize(model.len().max(at + len), 0);
                        model[at..at + len].copy_from_slice(&bytes);
                    }
                }
            }
            assert!(content(&overlay, "a") == model, "seed {seed}, step {step}");
        }
        assert_eq!(all(&*fs), before, "overlay.1: seed {seed}");
    }
}

#[test]
fn overlay_1_names_change_in_memory_only() {
    let fs = below();
    let before = all(&*fs);
    let overlay = OverlayFs::new(fs.clone(), DIR.as_ref());
    let path = |name: &str| Path::new(DIR).join(name);
    overlay.open(&path("c"), OpenOptions::create_new()).unwrap().write_all_at(b"new", 0).unwrap();
    overlay.rename(&path("a"), &path("d")).unwrap();
    overlay.rename(&path("c"), &path("b")).unwrap();
    let names = ["b", "d"].map(str::to_owned);
    assert_eq!(overlay.list_dir(DIR.as_ref()).unwrap(), names);
    assert_eq!((content(&overlay, "b"), content(&overlay, "d").len()), (b"new".to_vec(), 10_000));
    assert_eq!(overlay.file_size(&path("b")).unwrap(), 3);
    overlay.remove_file(&path("d")).unwrap();
    assert!(!overlay.exists(&path("d")).unwrap() && !overlay.exists(&path("a")).unwrap());
    let missing = overlay.open(&path("a"), OpenOptions::read()).unwrap_err();
    assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    let there = overlay.open(&path("b"), OpenOptions::create_new()).unwrap_err();
    assert_eq!(there.kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(all(&*fs), before, "overlay.1");
}

#[test]
fn a_frozen_directory_keeps_its_files() {
    let fs = below();
    let overlay = OverlayFs::frozen(fs.clone(), DIR.as_ref());
    overlay.add("a", fs.open(&Path::new(DIR).join("a"), OpenOptions::read()).unwrap());
    fs.remove_file(&Path::new(DIR).join("a")).unwrap();
    assert_eq!(overlay.list_dir(DIR.as_ref()).unwrap(), ["a"]);
    assert_eq!(content(&overlay, "a"), vec![7; 10_000]);
    assert!(!overlay.exists(&Path::new(DIR).join("b")).unwrap());
}
