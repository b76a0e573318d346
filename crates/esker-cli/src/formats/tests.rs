//! Tests all formats: random bytes are restored, columns found, bad lines reported.

use std::cell::RefCell;
use std::io::Cursor;
use std::rc::Rc;

use super::*;

const FORMATS: [FileFormat; 4] = [FileFormat::Tsv, FileFormat::Csv, FileFormat::Jsonl, FileFormat::Words];

const DEFAULTS: ReadOptions =
    ReadOptions { form: None, key: None, value: None, header: None, delimiter: None };

fn columns(key: &str, value: &str) -> ReadOptions {
    let column = |text: &str| (!text.is_empty()).then(|| Column(text.to_owned()));
    ReadOptions { key: column(key), value: column(value), ..DEFAULTS }
}

/// Returns rows as `key=value` and bad lines as `line: reason`.
fn read(format: FileFormat, text: &[u8], options: &ReadOptions) -> Vec<String> {
    let mut reader = reader(format, Box::new(Cursor::new(text.to_vec())), options).unwrap();
    let mut row = Row::default();
    let mut found = Vec::new();
    loop {
        match reader.read(&mut row).unwrap() {
            Step::Row => found.push(format!("{}={}", row.key.escape_ascii(), row.value.escape_ascii())),
            Step::Bad(reason) => found.push(format!("{}: {reason}", reader.line())),
            Step::End => return found,
        }
    }
}

fn write(format: FileFormat, rows: &[Row], options: WriteOptions) -> Result<Vec<u8>> {
    struct Shared(Rc<RefCell<Vec<u8>>>);
    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.borrow_mut().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let written = Rc::new(RefCell::new(Vec::new()));
    let mut writer = writer(format, Box::new(Shared(written.clone())), options)?;
    for row in rows {
        writer.write(&row.key, &row.value)?;
    }
    writer.finish()?;
    drop(writer);
    Ok(written.take())
}

fn random_rows(seed: u64) -> Vec<Row> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut bytes =
        || -> Vec<u8> {
            let alphabet = b"ab,\"\\\t\n\r\0 \xc3\xa4\xef\xbb\xbf\xff'{}x0";
            let length = random.usize(..10);
            (0..length)
                .map(|_| {
                    if random.u8(..4) == 0 { random.u8(..) } else { alphabet[random.usize(..alphabet.len())] }
                })
                .collect()
        };
    (0..40).map(|_| Row { key: bytes(), value: bytes(), expires_ms: None }).collect()
}

#[test]
fn formats_1_random_bytes_come_back() {
    for seed in 0..200 {
        let mut rows = random_rows(seed);
        rows[0].key = b"\xef\xbb\xbf".to_vec();
        for format in FORMATS {
            if format == FileFormat::Words {
                rows.iter_mut().for_each(|row| row.value.clear());
            }
            for form in [None, Some(ByteForm::Escaped), Some(ByteForm::Hex)] {
                for header in [None, Some(false), Some(format != FileFormat::Jsonl)] {
                    let text = write(format, &rows, WriteOptions { form, header, ..WriteOptions::default() })
                        .unwrap();
                    let found = read(format, &text, &ReadOptions { form, header, ..DEFAULTS });
                    let expected: Vec<String> = rows
                        .iter()
                        .map(|r| format!("{}={}", r.key.escape_ascii(), r.value.escape_ascii()))
                        .collect();
                    assert_eq!(found, expected, "formats.1: seed {seed}, {format:?}, {form:?}, {header:?}");
                }
            }
        }
    }
}

#[test]
fn formats_1_what_raw_lines_cannot_carry_is_refused() {
    let options = WriteOptions { form: Some(ByteForm::Raw), ..WriteOptions::default() };
    let row = |key: &str, value: &str| [Row { key: key.into(), value: value.into(), expires_ms: None }];
    for (format, key, value) in [
        (FileFormat::Tsv, "a\tb", ""),
        (FileFormat::Tsv, "a", "b\n"),
        (FileFormat::Words, "a\nb", ""),
        (FileFormat::Jsonl, "a", ""),
    ] {
        assert!(write(format, &row(key, value), options).is_err(), "{format:?} {key:?} {value:?}");
    }
    let with_header = WriteOptions { header: Some(true), ..WriteOptions::default() };
    assert!(write(FileFormat::Jsonl, &[], with_header).is_err(), "no reader takes it");
    assert_eq!(write(FileFormat::Tsv, &row("a", "b\tc"), options).unwrap(), b"a\tb\tc\n");
}

#[test]
fn tsv_finds_its_columns() {
    let text = b"a\tb\tc\r\nd\te\\tf\tg";
    assert_eq!(read(FileFormat::Tsv, text, &DEFAULTS), ["a=b\\tc", "d=e\\tf\\tg"]);
    assert_eq!(read(FileFormat::Tsv, text, &columns("2", "1")), ["b=a", "e\\tf=d"]);
    assert_eq!(read(FileFormat::Tsv, text, &columns("3", "")), ["c=a\\tb\\tc", "g=d\\te\\tf\\tg"]);
    let named = ReadOptions { header: Some(true), ..columns("b", "c") };
    assert_eq!(read(FileFormat::Tsv, text, &named), ["e\\tf=g"]);
}

#[test]
fn a_table_stays_a_table() {
    let rows = [Row { key: b"a\tb".to_vec(), value: b"c\td\n\t".to_vec(), expires_ms: None }];
    let text = write(FileFormat::Tsv, &rows, WriteOptions::default()).unwrap();
    assert_eq!(text, b"a\\tb\tc\td\\n\t\n");
}

#[test]
fn an_unreadable_header_is_reported() {
    struct Broken;
    impl io::Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("the device is gone"))
        }
    }
    for format in [FileFormat::Tsv, FileFormat::Csv] {
        let options = ReadOptions { header: Some(true), ..DEFAULTS };
        let failure = reader(format, Box::new(io::BufReader::new(Broken)), &options).err().unwrap();
        assert_eq!(failure.to_string(), "read the header: the device is gone", "{format:?}");
    }
}

#[test]
fn csv_finds_its_columns() {
    let text = b"id,name,note\n1,\"Ann, S\",\"say \"\"hi\"\"\"\n2,Bob,x\n";
    assert_eq!(read(FileFormat::Csv, text, &columns("name", "id")), ["Ann, S=1", "Bob=2"]);
    let rest = read(FileFormat::Csv, text, &DEFAULTS);
    assert_eq!(rest[1], "2=Bob,x");
    assert_eq!(rest[0], format!("1={}", b"\"Ann, S\",\"say \"\"hi\"\"\"".escape_ascii()));
    let numbered = ReadOptions { header: Some(false), ..columns("2", "") };
    assert_eq!(read(FileFormat::Csv, text, &numbered)[2], "Bob=2,Bob,x");
}

#[test]
fn json_takes_any_field_or_the_whole_line() {
    let text = b"{\"id\": 7, \"name\": \"Ann\"}\r\n\n{\"id\":\"x\",\"name\":[1]}\n";
    assert_eq!(read(FileFormat::Jsonl, text, &columns("id", "name")), ["7=Ann", "x=[1]"]);
    assert_eq!(
        read(FileFormat::Jsonl, text, &columns("id", "")),
        [
            format!("7={}", b"{\"id\": 7, \"name\": \"Ann\"}".escape_ascii()),
            format!("x={}", b"{\"id\":\"x\",\"name\":[1]}".escape_ascii())
        ]
    );
}

#[test]
fn what_is_no_string_stands_as_it_is() {
    let text = b"{\"id\":18446744073709551616}\n{\"id\":18446744073709551617}\n{\"id\": 1.0 ,\"x\":{\"b\":1,\"a\": 1e999}}\n";
    let found = read(FileFormat::Jsonl, text, &columns("id", ""));
    let keys: Vec<_> = found.iter().map(|row| row.split('=').next().unwrap()).collect();
    assert_eq!(keys, ["18446744073709551616", "18446744073709551617", "1.0"]);
    let x = read(FileFormat::Jsonl, text, &columns("id", "x"));
    assert_eq!(x[2..], [format!("1.0={}", b"{\"b\":1,\"a\": 1e999}".escape_ascii())]);
    // The last of two equal fields counts, and strings are unescaped.
    let text = b"{\"k\\u0065y\":\"\\u0061\",\"value\":1,\"value\":2}\n";
    assert_eq!(read(FileFormat::Jsonl, text, &DEFAULTS), ["a=2"]);
    let bad = read(
        FileFormat::Jsonl,
        b"{\"key\":\"\\ud800\",\"value\":1}\n{\"key\":01}\n{\"key_hex\":7}\n",
        &DEFAULTS,
    );
    for (bad, expected) in bad.iter().zip(["1: key: ", "2: no JSON object: ", "3: key_hex: a string"]) {
        assert!(bad.starts_with(expected), "{bad}");
    }
}

#[test]
fn bad_lines_are_named_and_skipped() {
    let starts = |found: Vec<String>, expected: &[&str]| {
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.starts_with(expected), "{found} / {expected}");
        }
    };
    starts(
        read(FileFormat::Tsv, b"a\tb\nword\nc\t\\q\nd\te\n", &DEFAULTS),
        &["a=b", "2: no tab", "3: value:", "d=e"],
    );
    starts(
        read(FileFormat::Csv, b"k,v\na,b\nc\nd,e\n", &DEFAULTS),
        &["a=b", "3: the row has 1 field, and the header names 2 columns", "d=e"],
    );
    starts(read(FileFormat::Words, b"a\n\\\nb", &DEFAULTS), &["a=", "2: key:", "b="]);
    let json = b"{\"key\":\"a\",\"value\":\"b\"}\n{\n[1]\n{\"value\":1}\n{\"key_hex\":\"f\"}\n{\"key\":1,\"key_hex\":\"ff\"}\n";
    starts(
        read(FileFormat::Jsonl, json, &DEFAULTS),
        &[
            "a=b",
            "2: no JSON object: the line ends within it; give one object per line",
            "3: no JSON object",
            "4: the object has no field `key`",
            "5: key_hex",
            "6: both",
        ],
    );
}

#[test]
fn impossible_columns_are_refused() {
    let refused =
        |format, options: &ReadOptions| match reader(format, Box::new(Cursor::new(b"a\tb\n")), options) {
            Ok(_) => panic!("{format:?} {options:?} was accepted"),
            Err(failure) => failure.to_string(),
        };
    assert!(refused(FileFormat::Tsv, &columns("name", "")).contains("--header yes"));
    assert!(refused(FileFormat::Tsv, &columns("0", "")).contains("from 1"));
    assert!(refused(FileFormat::Csv, &columns("name", "")).contains("the header names"));
    assert!(refused(FileFormat::Words, &columns("1", "")).contains("no columns"));
}

#[test]
fn names_tell_formats() {
    let chosen = |name: &str| choose(None, Path::new(name)).ok();
    assert_eq!(chosen("a.tsv"), Some(FileFormat::Tsv));
    assert_eq!(chosen("a.CSV"), Some(FileFormat::Csv));
    assert_eq!(chosen("a.ndjson"), Some(FileFormat::Jsonl));
    assert_eq!(chosen("a.txt"), Some(FileFormat::Words));
    assert_eq!(chosen("-"), Some(FileFormat::Tsv));
    assert_eq!(chosen("words"), None);
    assert_eq!(chosen("words.txt.gz"), Some(FileFormat::Words));
    assert_eq!(chosen("words.gz"), None);
    assert_eq!(choose(Some(FileFormat::Csv), Path::new("a.tsv")).ok(), Some(FileFormat::Csv));
}
