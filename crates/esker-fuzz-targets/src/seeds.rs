//! Valid inputs of each target, from which tests and fuzzers start.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker::recordio::Writer;
use esker::{Compression, fuzzing};
use esker_env::{Env, Fs, MemFs, OpenOptions, read_range};
use esker_world::generate::INPUT_BYTES_MAX;

/// Returns the valid inputs of a target, or `None` if there is no such target.
pub fn seeds(target: &str) -> Option<Vec<Vec<u8>>> {
    let tables = || [fuzzing::sstable::tables(), goldens(is_table)].concat();
    let parts = || fuzzing::sstable::parts(&tables());
    Some(match target {
        "numbers" => numbers(),
        "compression" => compressed(),
        "filter" => filters(),
        "record_file" => record_files(),
        "table_block" => parts().blocks,
        "table_index" => parts().indexes,
        "table_footer" => parts().footers,
        "table_parts" => parts().others,
        "table_stored" => parts().stored,
        "table" | "salvage_table" => tables(),
        "wal_segment" => [fuzzing::wal::segments(), goldens(is_first_segment)].concat(),
        "salvage_log" => [fuzzing::wal::logs(), golden_logs()].concat(),
        "commit_payload" => commit_payloads(),
        "version_edit" => version_edits(),
        "manifest_file" => [fuzzing::manifest::manifests(&version_edits()), goldens(is_manifest)].concat(),
        "current" => fuzzing::manifest::currents(),
        "catalog" => fuzzing::engine::catalogs(),
        "backup_record" => fuzzing::backup::backup_records(),
        "backup_stream" => fuzzing::backup::backup_streams(),
        "key_file" => fuzzing::encryption::key_files(),
        "unload_record" => fuzzing::unload::unload_records(),
        #[cfg(unix)]
        "shared_requests" | "shared_session" => esker_shared::fuzzing::request_seeds(),
        #[cfg(unix)]
        "shared_replies" => esker_shared::fuzzing::reply_seeds(),
        #[cfg(not(unix))]
        "shared_requests" | "shared_replies" | "shared_session" => vec![Vec::new()],
        "tuple_key" => tuple_keys(),
        "operations" => operations(),
        _ => return None,
    })
}

/// Reads files of golden directories (rule 2 of docs/compatibility.md).
#[expect(clippy::disallowed_methods, reason = "files of the source tree, not of a database")]
fn goldens(is_wanted: fn(&Path) -> bool) -> Vec<Vec<u8>> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../esker/tests/goldens"));
    let files = |dir: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
        let mut paths: Vec<_> = entries.map(|entry| entry.expect("a golden file").path()).collect();
        paths.sort();
        paths
    };
    let databases = files(root).into_iter().flat_map(|version| files(&version));
    let wanted = databases.flat_map(|database| files(&database)).filter(|path| is_wanted(path));
    wanted.map(|path| std::fs::read(path).expect("a golden file")).collect()
}

/// Excludes tables that need an optional codec.
fn is_table(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "sst") && !path.iter().any(|part| part == "zstd")
}

fn is_first_segment(path: &Path) -> bool {
    path.ends_with("000001.wal")
}

fn is_manifest(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("MANIFEST-"))
}

/// Returns logs of one segment in the format of the target.
fn golden_logs() -> Vec<Vec<u8>> {
    let segments = goldens(is_first_segment).into_iter();
    let short = segments.filter_map(|segment| Some((u16::try_from(segment.len()).ok()?, segment)));
    short.map(|(len, segment)| [&[0], &len.to_le_bytes()[..], &segment].concat()).collect()
}

/// Returns keys with fields of all types.
fn tuple_keys() -> Vec<Vec<u8>> {
    use esker_tuple::{Descending, Uuid, encode};
    let all = (None::<u8>, b"a\0b", "F\u{d4}O\0bar", ((), (None::<u8>, -1_i128 << 70)), 1.5_f32, -1.5_f64);
    let keys = [
        encode(&all),
        encode(&(false, true, Uuid([7; 16]), u64::MAX, i64::MIN, 1_u128 << 64, -5_551_212, 0)),
        encode(&vec![Some((Descending(Some("ann\0")), [1_i8, -1], 300_u64)), None]),
    ];
    keys.into_iter().map(|key| key.expect("a key of little depth")).collect()
}

/// Returns byte strings of different lengths; any bytes are operations.
fn operations() -> Vec<Vec<u8>> {
    let mut rng = fastrand::Rng::with_seed(2);
    let lengths = [20, 60, 200, 600, 1_000, 2_000, INPUT_BYTES_MAX];
    lengths.iter().map(|len| (0..*len).map(|_| rng.u8(..)).collect()).collect()
}

fn numbers() -> Vec<Vec<u8>> {
    vec![
        b"\x01\x03abc\x80\x01\x00\x7F".to_vec(),
        b"\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01\x02hi\x05".to_vec(),
    ]
}

/// Returns contents with and without repetition.
fn contents() -> Vec<Vec<u8>> {
    let mut rng = fastrand::Rng::with_seed(1);
    vec![
        b"hello".to_vec(),
        Vec::new(),
        b"words and words and other words ".repeat(20),
        (0..200).map(|_| rng.u8(..)).collect(),
        vec![0; 3_000],
    ]
}

fn filters() -> Vec<Vec<u8>> {
    let mut one = vec![0x55; 64];
    one.push(6);
    let mut four: Vec<u8> = (0..=255).collect();
    four.push(1);
    vec![one, four]
}

fn record_files() -> Vec<Vec<u8>> {
    Compression::ALL.iter().map(|&codec| record_file(codec, &contents()).0).collect()
}

/// Returns compressed payloads from record files, preceded by the index of the codec in `Compression::ALL`
/// and the length.
fn compressed() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (i, &codec) in Compression::ALL.iter().enumerate() {
        for content in contents() {
            let (file, start) = record_file(codec, &[&content]);
            let len = (content.len() as u32).to_le_bytes();
            seeds.push([&[i as u8, len[0], len[1], len[2]], &file[start..]].concat());
        }
    }
    seeds
}

/// Returns the golden bytes of docs/formats/wal.md and others.
fn commit_payloads() -> Vec<Vec<u8>> {
    let puts = (0..20).flat_map(|i| [1, 2, 1, i, 3, b'x', b'y', i]);
    vec![
        b"\x02\x01\x03\xac\x02\x0a\x01\x02\x01a\x03xyz\x00\x02\x01b\x02\x02\x01c\x02\x01d".to_vec(),
        [0].into_iter().chain(puts).collect(),
        vec![0],
    ]
}

/// Returns the golden bytes of a version edit and others.
fn version_edits() -> Vec<Vec<u8>> {
    let numbers = b"\x01\x08\x02\x04\x03\x06\x04\xac\x02\x05\xad\x02\x06\xae\x02\x07\xff\xff\xff\xff\x0f";
    let lists = b"\x08\x01\x01\x2a\x09\x02";
    let counts = b"\x0a\x08\x02\x01\x64\xa0\x06\x03\x09";
    let table = [b"\x0a\x07\x07\x01\xe8\x07", &counts[..], b"\x02\x01a\x00\x02\x01q\x05"].concat();
    let second = [b"\x0a\x09\x00\x02\xe8\x07", &counts[..], b"\x02\x01c\x01\x02\x01d\x06"].concat();
    vec![
        [&numbers[..], lists, &table].concat(),
        [&numbers[..], lists, &table, &second].concat(),
        numbers.to_vec(),
        [&numbers[..], &second].concat(),
        Vec::new(),
    ]
}

/// Returns a record file and the start of the payload of its first record.
fn record_file(codec: Compression, records: &[impl AsRef<[u8]>]) -> (Vec<u8>, usize) {
    let path = Path::new("f");
    let fs = MemFs::new();
    let env = Env::simulated(Arc::new(fs.clone()), 1);
    let mut writer =
        Writer::options().env(&env).compression(codec).create(path).expect("memory does not fail");
    let header = writer.size() as usize;
    for record in records {
        writer.append(record.as_ref()).expect("memory does not fail");
    }
    let size = writer.finish().expect("memory does not fail");
    // Both headers have the same size.
    (bytes_of(&fs, path, size), 2 * header)
}

fn bytes_of(fs: &MemFs, path: &Path, size: u64) -> Vec<u8> {
    let file = fs.open(path, OpenOptions::read()).expect("the file is there");
    read_range(&*file, 0, size as usize).expect("memory does not fail")
}
