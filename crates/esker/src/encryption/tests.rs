//! Keys, seals and their files.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::HashSet;
use std::io;
use std::sync::Arc;

use esker_env::{MemFs, read_range};
use parking_lot::Mutex;

use super::cipher::{FileKey, KeyHeader};
use super::*;
use crate::encoding::checksum::crc32c;

/// A provider with a master key that draws 1, 2, 3, ... as random bytes, for golden files.
#[derive(Debug)]
struct Counting {
    keys: MasterKeys,
    next: Mutex<u8>,
}

impl Counting {
    fn new() -> Self {
        Counting { keys: MasterKeys::new("m1", &[7; 32]).unwrap(), next: Mutex::new(0) }
    }
}

impl KeyProvider for Counting {
    fn current(&self) -> io::Result<String> {
        self.keys.current()
    }
    fn wrap(&self, _: &str, key: &[u8; 32]) -> io::Result<Vec<u8>> {
        Ok(key.iter().map(|byte| byte ^ 0xFF).collect())
    }
    fn unwrap(&self, _: &str, wrapped: &[u8]) -> io::Result<[u8; 32]> {
        let key: Vec<u8> = wrapped.iter().map(|byte| byte ^ 0xFF).collect();
        key.try_into().map_err(|_| io::ErrorKind::InvalidData.into())
    }
    fn random(&self, bytes: &mut [u8]) -> io::Result<()> {
        let mut next = self.next.lock();
        for byte in bytes {
            *next = next.wrapping_add(1);
            *byte = *next;
        }
        Ok(())
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn memory() -> Env {
    let env = Env::simulated(Arc::new(MemFs::new()), 1);
    env.fs.create_dir_all(Path::new("d")).unwrap();
    env
}

fn keys_of(env: &Env) -> Vec<u8> {
    let file = env.fs.open(Path::new("d/KEYS"), esker_env::OpenOptions::read()).unwrap();
    read_range(&*file, 0, file.len().unwrap() as usize).unwrap()
}

fn opened(env: &Env, provider: impl KeyProvider, purpose: Unlock) -> Result<Env> {
    unlock(&with_keys(env, Arc::new(provider)), Path::new("d"), purpose)
}

fn master(id: &str, byte: u8) -> MasterKeys {
    MasterKeys::new(id, &[byte; 32]).unwrap()
}

#[test]
fn golden_v1() {
    let env = opened(&memory(), Counting::new(), Unlock::Create).unwrap();
    let keys = keys_of(&env);
    assert_eq!(
        hex(&keys),
        "65736b65724b59530100000001020304050607080\
         26d3120000000f6f5f4f3f2f1f0efeeedecebeae9e8e7e6e5e4e3e2e1e0dfdedddcdbdad9d8d7"
            .to_owned()
            + &hex(&crc32c(&keys[..keys.len() - 4]).to_le_bytes())
    );
    let seal = Seal::create(&env, FileKind::Table).unwrap();
    let (header, mut unit) = (seal.header(b"footer"), b"a block".to_vec());
    seal.seal(4096, b"context", &mut unit);
    assert_eq!(hex(&header[..16]), "654b4559010101000102030405060708");
    assert_eq!(hex(&header[16..48]), hex(&(41..73).collect::<Vec<u8>>()));
    assert_eq!(hex(&header[48..]), "f5ae519ab8d5a9912e14eeefb3249de2");
    assert_eq!(hex(&unit), "e5f82509aebb1bcbeb6fd6339edf05e0b449e0be94ce7e");
}

#[test]
fn a_file_contains_its_own_keys_at_most_4096_bytes() {
    let db_env = opened(&memory(), Counting::new(), Unlock::Create).unwrap();
    let (path, reader) = (Path::new("f"), locked(&db_env));
    let env = for_one_file(&memory(), &db_env, path).unwrap();
    let own = own_keys(&env).unwrap().unwrap();
    let len = u32::from_le_bytes(*own.first_chunk().unwrap()) as usize;
    assert_eq!((own.len(), len, &own[4..12]), (OWN_KEYS_BYTES, 8 + 4 + 8 + 3 + 36 + 4, &b"eskerKYS"[..]));
    assert!(own[4 + len..].iter().all(|byte| *byte == 0));
    let seal = Seal::create(&env, FileKind::Records).unwrap();
    let (header, mut unit) = (seal.header(b""), b"a record".to_vec());
    seal.seal(20, b"", &mut unit);
    let found = with_own_keys(&reader, (path, 84), &own).unwrap();
    let found = Seal::find(&found, (path, 20), FileKind::Records, Some(&header), b"").unwrap();
    let opened = found.open(20, b"", &mut unit).unwrap();
    assert_eq!(unit[..opened], *b"a record");
    // The key of the database does not open it, and nothing opens it without the provider.
    assert!(Seal::find(&db_env, (path, 20), FileKind::Records, Some(&header), b"").is_err());
    assert!(with_own_keys(&memory(), (path, 84), &own).is_err());
    for at in 0..4 + len {
        let mut bad = own.clone();
        bad[at] ^= 1;
        let is_name = (16..24).contains(&at);
        assert!(with_own_keys(&reader, (path, 84), &bad).is_err() || is_name, "byte {at}");
    }
}

fn key(kind: FileKind, salt: u8, may_seal: bool) -> FileKey {
    FileKey::derive(&[3; 32], KeyHeader { database_key: 1, kind: kind as u8, salt: [salt; 32] }, may_seal)
}

#[test]
#[should_panic(expected = "seal.1")]
fn seal_1_a_position_is_not_sealed_twice() {
    let key = key(FileKind::Records, 1, true);
    key.seal(20, b"", &mut [1]);
    key.seal(20, b"", &mut [2]);
}

#[test]
#[should_panic(expected = "seal.1")]
fn seal_1_positions_rise() {
    let key = key(FileKind::Segment, 1, true);
    key.seal(20, b"", &mut [1]);
    key.seal(19, b"", &mut [2]);
}

#[test]
#[should_panic(expected = "seal.1")]
fn seal_1_a_found_key_does_not_seal() {
    key(FileKind::Table, 1, false).seal(0, b"", &mut [1]);
}

#[test]
#[should_panic(expected = "seal.1")]
fn seal_1_the_header_is_made_once() {
    let key = key(FileKind::Table, 1, true);
    key.header(b"a");
    key.header(b"b");
}

#[test]
fn seal_1_every_use_of_a_file_has_a_key_of_its_own() {
    let env = opened(&memory(), master("m", 1), Unlock::Create).unwrap();
    let mut found = HashSet::new();
    for _ in 0..100 {
        let seal = Seal::create(&env, FileKind::Segment).unwrap();
        let mut unit = vec![0; 16];
        seal.seal(96, b"", &mut unit);
        assert!(found.insert(unit), "seal.1: two uses have one key stream");
    }
}

#[test]
fn seal_2_what_was_sealed_elsewhere_is_refused() {
    let sealed = |kind, salt: u8, position, context: &[u8]| {
        let mut unit = b"a value".to_vec();
        let tag = key(kind, salt, true).seal(position, context, &mut unit);
        unit.extend_from_slice(&tag);
        unit
    };
    let opens = |mut unit: Vec<u8>| key(FileKind::Blobs, 1, false).open(50, b"c", &mut unit).is_some();
    let good = sealed(FileKind::Blobs, 1, 50, b"c");
    assert!(opens(good.clone()));
    for bad in [
        sealed(FileKind::Table, 1, 50, b"c"),
        sealed(FileKind::Blobs, 2, 50, b"c"),
        sealed(FileKind::Blobs, 1, 51, b"c"),
        sealed(FileKind::Blobs, 1, 50, b"d"),
        good[..good.len() - 1].to_vec(),
        Vec::new(),
    ] {
        assert!(!opens(bad), "seal.2");
    }
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(!opens(bad), "seal.2: bit {bit}");
    }
}

#[test]
fn seal_2_a_key_header_is_of_one_file() {
    let env = opened(&memory(), master("m", 1), Unlock::Create).unwrap();
    let header = Seal::create(&env, FileKind::Blobs).unwrap().header(b"blob 7");
    let find = |kind, header: &[u8], bound: &[u8]| {
        Seal::find(&env, (Path::new("d/000007.blob"), 32), kind, Some(header), bound)
    };
    assert!(find(FileKind::Blobs, &header, b"blob 7").unwrap().is_on());
    assert!(find(FileKind::Blobs, &header, b"blob 8").unwrap_err().is_corrupt());
    assert!(find(FileKind::Table, &header, b"blob 7").unwrap_err().is_corrupt());
    for at in 0..header.len() {
        let mut bad = header.clone();
        bad[at] ^= 1;
        let error = find(FileKind::Blobs, &bad, b"blob 7").unwrap_err();
        let is_typed = matches!(
            error,
            Error::Corrupt { offset: 32, .. } | Error::UnsupportedVersion { .. } | Error::Encryption { .. }
        );
        assert!(is_typed, "byte {at}: {error}");
    }
}

#[test]
fn every_flipped_byte_of_keys_is_a_typed_error() {
    let env = memory();
    opened(&env, master("m", 1), Unlock::Create).unwrap();
    let good = keys_of(&env);
    let put = |bytes: &[u8]| {
        crate::types::replace_file(&env, Path::new("d"), KEYS_TMP, KEYS, bytes).unwrap();
        opened(&env, master("m", 1), Unlock::Read)
    };
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1;
        assert!(put(&bad).unwrap_err().is_corrupt(), "byte {at}");
        // With a right checksum it is noticed, too, unless the byte only names the key.
        let crc = crc32c(&bad[..bad.len() - 4]).to_le_bytes();
        let end = bad.len() - 4;
        bad[end..].copy_from_slice(&crc);
        let is_name = (12..20).contains(&at) || at >= end;
        assert!(is_name || put(&bad).is_err(), "byte {at}");
        assert!(put(&good[..at]).is_err(), "{at} bytes");
    }
    put(&good).unwrap();
}

#[test]
fn keyring_2_another_master_key_wraps_all_keys_again_and_new_files_get_a_new_key() {
    let env = memory();
    let before = opened(&env, master("old", 1), Unlock::Create).unwrap();
    let header = Seal::create(&before, FileKind::Table).unwrap().header(b"");
    let both = || master("new", 2).and_older("old", &[1; 32]).unwrap();
    let finds = |env: &Env, header: &[u8]| {
        Seal::find(env, (Path::new("d/1.sst"), 0), FileKind::Table, Some(header), b"").is_ok()
    };
    // Reading changes nothing.
    let stored = keys_of(&env);
    assert!(finds(&opened(&env, both(), Unlock::Read).unwrap(), &header) && keys_of(&env) == stored);
    let after = opened(&env, both(), Unlock::Change).unwrap();
    let new_header = Seal::create(&after, FileKind::Table).unwrap().header(b"");
    assert!(header[8..16] != new_header[8..16], "a new database key");
    // The old master key is not needed any more, nor is anything wrapped once more.
    let stored = keys_of(&env);
    let alone = opened(&env, master("new", 2), Unlock::Change).unwrap();
    assert!(finds(&alone, &header) && finds(&alone, &new_header) && keys_of(&env) == stored);
    let problem = |opened: Result<Env>| match opened.unwrap_err() {
        Error::Encryption { problem, .. } => problem,
        other => panic!("{other}"),
    };
    use EncryptionProblem::{MasterKeyUnknown, MasterKeyWrong};
    assert!(matches!(problem(opened(&env, master("old", 1), Unlock::Read)), MasterKeyUnknown(_)));
    assert!(matches!(problem(opened(&env, master("new", 3), Unlock::Read)), MasterKeyWrong(_)));
}

#[test]
fn a_file_of_master_keys() {
    let env = memory();
    let read = |text: &str| {
        let path = Path::new("d/keys");
        let file = env.fs.open(path, esker_env::OpenOptions::create()).unwrap();
        file.write_all_at(text.as_bytes(), 0).unwrap();
        MasterKeys::from_file_in(&env, path)
    };
    let digits = "0123456789abcdefABCDEF00112233445566778899aabbccddeeff0011223344";
    let keys = read(&format!("# made by hand\n\n2026 {digits}\nold  {digits}\n")).unwrap();
    assert_eq!(
        (keys.current().unwrap(), format!("{keys:?}")),
        ("2026".to_owned(), "MasterKeys([\"2026\", \"old\"])".to_owned())
    );
    // Keys without ids have ids that differ.
    let unnamed = read(&format!("{digits}\n{}\n", digits.replace('0', "1"))).unwrap();
    assert_eq!(format!("{unnamed:?}"), "MasterKeys([\"75f917302eeacc1a\", \"404a6fe7aa84c758\"])");
    let wrapped = keys.wrap("old", &[9; 32]).unwrap();
    assert_eq!(keys.unwrap("old", &wrapped).unwrap(), [9; 32]);
    assert!(keys.unwrap("2026", &wrapped).is_err());
    for bad in [
        "",
        "# nothing\n",
        "id\n",
        &digits[1..],
        &format!("id {}\n", &digits[1..]),
        &format!("id {digits}0\n"),
        &format!("a {digits}\na {digits}"),
        &format!("id {}\u{e9}0", &digits[2..]),
    ] {
        assert!(matches!(read(bad), Err(Error::Invalid(_))), "{bad:?}");
    }
}
