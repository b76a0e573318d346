//! Prepares the bytes of a file for its reader, for all text formats.
//!
//! ```text
//!   file --> compressed? --> byte order mark? --> UTF-16? CR line ends? --> RowReader
//! ```
//!
//! One UTF-8 byte order mark at the start is dropped. A writer whose first row begins with those bytes adds a
//! second one, or escapes them. Input that is not UTF-8 text with LF line ends is refused with the command
//! that converts it, unless `--bytes raw` is given. Only the first line is read ahead, because the rest of a
//! pipe may arrive later.

use std::io::{self, BufRead, Cursor, Read};

use super::compressed::Compression;
use crate::args::FileFormat;
use crate::failure::{Failure, Result};
use crate::text::ByteForm;

/// The UTF-8 byte order mark, which some programs write before text.
pub(super) const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";
/// Number of bytes of the first line that are examined.
const HEAD_BYTES_MAX: u64 = 64 << 10;

/// Returns the text of `input`. `form` is the form that the user gave, if any.
pub(super) fn text(
    mut input: Box<dyn BufRead>,
    format: FileFormat,
    form: Option<ByteForm>,
) -> Result<Box<dyn BufRead>> {
    let mut head = Vec::new();
    // The reader of the rows meets the same error and reports it.
    let failed = (&mut input).take(HEAD_BYTES_MAX).read_until(b'\n', &mut head).err();
    if form != Some(ByteForm::Raw)
        && let Some(refusal) = refusal(&head, format)
    {
        return Err(Failure::message(refusal));
    }
    let start = if head.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
    let head = Cursor::new(head.split_off(start));
    Ok(match failed {
        None => Box::new(head.chain(input)),
        Some(error) => Box::new(head.chain(io::BufReader::new(Failed(Some(error))))),
    })
}

/// Returns why a file that starts with `head` cannot be read in this format.
fn refusal(head: &[u8], format: FileFormat) -> Option<String> {
    if let Some(encoding) = wide_encoding(head) {
        return Some(format!(
            "the file is {encoding}, and import reads UTF-8: convert it with `iconv -f {encoding} -t UTF-8 FILE > NEW`"
        ));
    }
    if let Some(compression) = Compression::of_content(head) {
        return Some(compression.refusal());
    }
    // CSV readers end rows at CR, and JSON treats it as white space.
    let is_by_lines = matches!(format, FileFormat::Tsv | FileFormat::Words);
    let line = head.strip_suffix(b"\r").unwrap_or(head);
    (is_by_lines && !head.contains(&b'\n') && line.contains(&b'\r')).then(|| {
        "the lines of the file end with CR alone: convert them with `tr '\\r' '\\n' < FILE > NEW`; if they do \
         not, and CR is part of the rows, say --bytes raw"
            .to_owned()
    })
}

/// Returns the encoding of text with two or four bytes per character. It is recognized by its byte order
/// mark, or by NUL in every other byte of the first line.
fn wide_encoding(head: &[u8]) -> Option<&'static str> {
    match head {
        [0xFF, 0xFE, 0, 0, ..] | [0, 0, 0xFE, 0xFF, ..] => return Some("UTF-32"),
        [0xFF, 0xFE, ..] | [0xFE, 0xFF, ..] => return Some("UTF-16"),
        // A quoted CSV field may contain any bytes, but NUL never follows its closing quote.
        [b'"', rest @ ..] if !rest.windows(2).any(|pair| pair == b"\"\0") => return None,
        _ => {}
    }
    let is_nul = |offset: usize| head.iter().skip(offset).step_by(2).all(|byte| *byte == 0);
    let is_text = |offset: usize| head.iter().skip(offset).step_by(2).all(|byte| *byte != 0);
    match head.len() {
        ..4 => None,
        _ if is_text(0) && is_nul(1) => Some("UTF-16LE"),
        _ if is_nul(0) && is_text(1) => Some("UTF-16BE"),
        _ => None,
    }
}

/// Input whose first read failed.
struct Failed(Option<io::Error>);

impl Read for Failed {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.0.take().map_or(Ok(0), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8], format: FileFormat, form: Option<ByteForm>) -> Result<Vec<u8>> {
        let mut found = Vec::new();
        text(Box::new(Cursor::new(bytes.to_vec())), format, form)?.read_to_end(&mut found)?;
        Ok(found)
    }

    #[test]
    fn one_mark_is_dropped() {
        let cases: [(&[u8], &[u8]); 6] = [
            (b"\xEF\xBB\xBFa\n", b"a\n"),
            (b"\xEF\xBB\xBF\xEF\xBB\xBFa\n", b"\xEF\xBB\xBFa\n"),
            (b"\xEF\xBB\xBF", b""),
            (b"\xEF\xBBa", b"\xEF\xBBa"),
            (b"", b""),
            (b"a\n\xEF\xBB\xBFb\n", b"a\n\xEF\xBB\xBFb\n"),
        ];
        for (bytes, expected) in cases {
            for format in [FileFormat::Tsv, FileFormat::Csv, FileFormat::Jsonl, FileFormat::Words] {
                for form in [None, Some(ByteForm::Raw)] {
                    assert_eq!(read(bytes, format, form).unwrap(), expected, "{bytes:?}");
                }
            }
        }
        for first in 0..4 {
            let (start, rest) = b"\xEF\xBB\xBFa\n".split_at(first);
            let input = Cursor::new(start).chain(Cursor::new(rest));
            let mut found = Vec::new();
            text(Box::new(input), FileFormat::Csv, None).unwrap().read_to_end(&mut found).unwrap();
            assert_eq!(found, b"a\n", "a mark that comes in parts");
        }
    }

    #[test]
    fn what_is_no_such_text_is_named() {
        let wide =
            |order: fn(u16) -> [u8; 2], text: &str| text.encode_utf16().flat_map(order).collect::<Vec<_>>();
        let text = "ann\t1\r\nbob\t2\r\n";
        let marked = format!("\u{feff}{text}");
        let cases = [
            (wide(u16::to_le_bytes, text), "-f UTF-16LE "),
            (wide(u16::to_be_bytes, text), "-f UTF-16BE "),
            (wide(u16::to_le_bytes, &marked), "-f UTF-16 "),
            (wide(u16::to_be_bytes, &marked), "-f UTF-16 "),
            (b"\xFF\xFE\0\0a\0\0\0".to_vec(), "-f UTF-32 "),
            (b"\x1f\x8b\x08\0\0".to_vec(), "zcat FILE"),
            (wide(u16::to_le_bytes, "\"a\",\"b\"\r\n"), "-f UTF-16LE "),
            (wide(u16::to_le_bytes, "\"a\",b\n"), "-f UTF-16LE "),
            (b"\x28\xb5\x2f\xfd\x04\n".to_vec(), "zstd -dc FILE"),
            (b"\xfd7zXZ\0\0".to_vec(), "xz -dc FILE"),
            (b"BZh91AY&SY\0".to_vec(), "bzip2 -dc FILE"),
            (b"PK\x03\x04\x14\0".to_vec(), "unzip -p FILE"),
            (b"ann\t1\rbob\t2\r".to_vec(), "CR alone"),
        ];
        for (bytes, expected) in cases {
            for format in [FileFormat::Tsv, FileFormat::Csv, FileFormat::Jsonl, FileFormat::Words] {
                let Err(refused) = read(&bytes, format, None) else {
                    assert_eq!(expected, "CR alone", "{format:?} {bytes:?}");
                    continue;
                };
                let refused = refused.to_string();
                assert!(refused.contains(expected), "{bytes:?}: {refused}");
            }
            assert_eq!(read(&bytes, FileFormat::Tsv, Some(ByteForm::Raw)).unwrap(), bytes);
        }
        let all_well: [&[u8]; 8] = [
            b"a\t1\r\nb\rc\t2",
            b"a\t1\r",
            b"a\0\0b\t\n",
            b"\0\0\0\0",
            b"a\0",
            b"\"\0x\0\n\0\"",
            b"BZh\t1\n",
            b"PK\t1\n",
        ];
        for bytes in all_well {
            assert_eq!(read(bytes, FileFormat::Tsv, None).unwrap(), bytes);
        }
        assert!(read(b"a,1\rb,2\r", FileFormat::Csv, None).is_ok());
    }
}
