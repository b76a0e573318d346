//! Tests common input files: byte order marks, other encodings, line ends, arrays, compression, delimiters.

use std::io::Write;

use crate::common::Esker;

#[test]
fn a_byte_order_mark_is_no_part_of_the_first_key() {
    let esker = Esker::new();
    let files = [
        ("f.tsv", "ann\t1\nbob\t2\n"),
        ("f.csv", "key,value\nann,1\nbob,2\n"),
        ("f.jsonl", "{\"key\":\"ann\",\"value\":1}\n{\"key\":\"bob\",\"value\":2}\n"),
        ("f.json", "[{\"key\":\"ann\",\"value\":1},{\"key\":\"bob\",\"value\":2}]"),
    ];
    for (file, text) in files {
        esker.write(file, format!("\u{feff}{text}"));
        esker.ok(&format!("import -k {file} {file}"));
        assert_eq!(esker.ok(&format!("scan -k {file}")), "ann\t1\nbob\t2\n", "{file}");
    }
    esker.write("f.txt", "\u{feff}ann\nbob\n");
    esker.ok("import -k words f.txt");
    assert_eq!(esker.ok("scan -k words --keys-only"), "ann\nbob\n");
    esker.write("h.tsv", "\u{feff}id\tname\n1\tann\n");
    esker.ok("import -k header h.tsv --header yes --key id");
    assert_eq!(esker.ok("get -k header 1"), "ann\n");
}

#[test]
fn a_first_key_that_is_a_mark_comes_back() {
    let esker = Esker::new();
    esker.run(["put", "\u{feff}ann", "1"]);
    esker.run(["put", "\u{feff}\u{feff}bob", "2"]);
    let forms =
        ["tsv", "tsv --bytes raw", "csv", "csv --header no", "csv --header no --bytes escaped", "jsonl"];
    for (number, form) in forms.into_iter().enumerate() {
        esker.ok(&format!("export file --format {form}"));
        esker.ok(&format!("import -k copy{number} file --format {form}"));
        assert_eq!(esker.ok(&format!("scan -k copy{number}")), esker.ok("scan"), "{form}");
    }
    for form in ["words", "words --bytes raw"] {
        esker.ok(&format!("export file --format {form}"));
        esker.ok(&format!("import -k words file --format {form}"));
        assert_eq!(esker.ok("scan -k words --keys-only"), esker.ok("scan --keys-only"), "{form}");
    }
}

#[test]
fn input_that_is_not_utf8_is_refused() {
    let esker = Esker::new();
    let utf16: Vec<u8> = "\u{feff}ann\t1\r\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    for name in ["f.tsv", "f.csv", "f.jsonl", "f.txt"] {
        esker.write(name, &utf16);
        let said = esker.fails(&format!("import {name}"));
        assert!(said.contains("UTF-16") && said.contains("iconv -f"), "{name}: {said}");
    }
    esker.write("cr.tsv", "ann\t1\rbob\t2\r");
    let said = esker.fails("import cr.tsv");
    assert!(said.contains("CR alone") && said.contains("tr '"), "{said}");
    esker.write("cr.csv", "key,value\rann,1\rbob,2\r");
    esker.ok("import cr.csv");
    esker.write("cr.json", "[{\"key\":\"c\",\"value\":3}\r,\r{\"key\":\"d\",\"value\":4}]\r");
    esker.ok("import cr.json");
    assert_eq!(esker.ok("scan"), "ann\t1\nbob\t2\nc\t3\nd\t4\n");
}

#[test]
fn arrays_are_imported_however_they_are_laid_out() {
    let esker = Esker::new();
    esker.write(
        "a.json",
        "\n[\n  {\n    \"id\": 1,\n    \"name\": \"Ann\"\n  },\n  {\"id\": null}, [],\n {\"id\":2}\n]\n",
    );
    let said = esker.fails("import a.json --key id");
    assert!(said.contains("a.json:7: the object has no field `id`, or it is null"), "{said}");
    let skipped = esker.run(["import", "a.json", "--key", "id", "--skip-bad"]);
    assert!(skipped.text().contains("imported 2 rows, 2 new keys, "), "{skipped:?}");
    assert!(skipped.err.contains("a.json:7: no JSON object: "), "{skipped:?}");
    assert_eq!(
        esker.run(["get", "--bytes", "raw", "1"]).text(),
        "{\n    \"id\": 1,\n    \"name\": \"Ann\"\n  }"
    );
    esker.write("cut.json", "[{\"key\":\"k\",\"value\":1},");
    assert!(esker.fails("import cut.json").contains("line 1: the array has no end"));
}

#[test]
fn a_missing_value_is_a_bad_line_and_a_null_one_too() {
    let esker = Esker::new();
    for (number, object) in ["{\"key\":\"k\",\"value\":null}", "{\"key\":\"k\"}"].into_iter().enumerate() {
        esker.write("f.jsonl", object);
        for options in ["", " --value value", " --key key --value value"] {
            let said = esker.fails(&format!("import f.jsonl{options}"));
            assert!(said.contains("f.jsonl:1: the object has no field `value`, or it is null"), "{said}");
            assert!(said.contains("with --key FIELD alone the whole object is the value"), "{said}");
        }
        esker.ok(&format!("import f.jsonl --key key -k whole{number}"));
        assert_eq!(esker.ok(&format!("get -k whole{number} k")), format!("{object}\n"));
    }
}

#[test]
fn compressed_files_are_imported_with_all_their_members() {
    let esker = Esker::new();
    let member = |text: &str| {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(text.as_bytes()).unwrap();
        gzip.finish().unwrap()
    };
    let bytes = [member("\u{feff}ann\t1\nbo"), member("b\t2\n")].concat();
    esker.write("f.tsv.gz", &bytes);
    esker.ok("import f.tsv.gz");
    assert_eq!(esker.ok("scan"), "ann\t1\nbob\t2\n");
    esker.write("cut.tsv.gz", &bytes[..bytes.len() - 3]);
    assert!(esker.fails("import cut.tsv.gz").contains("read cut.tsv.gz: "));
    esker.write("f.tsv", &bytes);
    assert!(esker.fails("import f.tsv").contains("a name that ends in .gz"));
    esker.write("f.csv.zst", b"\x28\xb5\x2f\xfd\x04\0");
    for line in ["import f.csv.zst", "import f.csv.zst --format csv"] {
        assert!(esker.fails(line).contains("compressed (zstd): pipe it, `zstd -dc FILE |"), "{line}");
    }
    assert!(esker.fails("export f.zst").contains("| zstd > f.zst"));
    assert!(esker.fails("export f.tsv.gz").contains("| gzip > f.tsv.gz"));
}

#[test]
fn columns_may_be_apart_by_other_characters() {
    let esker = Esker::new();
    esker.write("u.txt", "0041;LETTER A;Lu\n00DF;SHARP S;Ll\n");
    esker.ok("import u.txt --format tsv --delimiter ; --value 2");
    assert_eq!(esker.ok("scan"), "0041\tLETTER A\n00DF\tSHARP S\n");
    let said = esker.fails("import u.txt --format tsv");
    assert!(said.contains("--delimiter"), "{said}");
    esker.run(["put", "a;b\tc", "d;e\tf"]);
    for (number, format) in
        ["csv --delimiter ;", "csv --delimiter tab", "tsv --delimiter ;"].into_iter().enumerate()
    {
        esker.ok(&format!("export file --format {format}"));
        esker.ok(&format!("import -k copy{number} file --format {format}"));
        assert_eq!(esker.ok(&format!("scan -k copy{number}")), esker.ok("scan"), "formats.1: {format}");
    }
    assert!(esker.fails("import u.txt --delimiter ;").contains("no columns"));
    assert!(esker.fails("import u.txt --format tsv --delimiter ab").contains("one character"));
}

#[test]
fn an_import_says_what_it_took_and_what_is_new() {
    let esker = Esker::new();
    esker.write("t.csv", "Ann,1\nBob,2\nBob,3\n");
    let outcome = esker.run(["import", "t.csv"]);
    assert!(outcome.err.contains("t.csv:1: taken as a header"), "{outcome:?}");
    assert!(outcome.err.contains(": Ann, 1;") && outcome.text().starts_with("imported 2 rows, 1 new key, "));
    for line in ["import t.csv --header no", "import t.csv --header yes"] {
        assert_eq!(esker.run(line.split(' ')).err, "", "{line}");
    }
    assert!(esker.ok("import t.csv --json --header no").contains("\"new_keys\":0,\"rows\":3"));
    // The header of our own exports is recognized.
    esker.ok("export own.csv");
    assert_eq!(esker.run(["import", "own.csv"]).err, "");
    esker.write("blank.tsv", "\na\t1\n\r\n\n\t\n");
    esker.ok("import -k blank blank.tsv");
    assert_eq!(esker.ok("scan -k blank"), "\t\na\t1\n");
    assert_eq!(
        esker.ok("export -k blank --json"),
        "{\"key\":\"\",\"value\":\"\"}\n{\"key\":\"a\",\"value\":\"1\"}\n"
    );
}

#[test]
fn a_failed_import_leaves_no_keyspace() {
    let esker = Esker::new();
    esker.write("bad.tsv", "word\n");
    let said = esker.fails("import bad.tsv --db fresh");
    assert!(said.contains("the import has created the database in fresh, which is empty"), "{said}");
    assert_eq!(esker.ok("count --db fresh"), "0\n");
    assert!(!esker.fails("import bad.tsv --db fresh").contains("has created"));
    esker.ok("put a 1");
    esker.fails("import -k new bad.tsv");
    assert!(esker.fails("count -k new").contains("no keyspace `new`"));
    esker.write("half.tsv", "a\t1\nword\n");
    esker.fails("import -k half half.tsv --batch 1");
    assert_eq!(esker.ok("count -k half"), "1\n");
}
