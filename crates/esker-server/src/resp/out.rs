//! Replies, encoded for the client's protocol version.

use super::unconfirmed::Unconfirmed;
use crate::resp::fail::too_large;
use crate::resp::fail::{Done, Fail};

/// Maximum bytes of a connection's replies in one piece. A command whose reply does not fit fails.
pub const REPLY_BYTES_MAX: usize = 1 << 30;
/// Bytes of a long text written at a time.
#[cfg(feature = "lua")]
const PIECE: usize = 64 << 10;
/// Maximum size of an error.
pub const ERROR_BYTES_MAX: usize = 64 << 10;

/// Replies that are not sent yet.
#[derive(Debug)]
pub struct Out {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// RESP3 instead of RESP2.
    pub is_resp3: bool,
    /// Maximum number of bytes.
    pub bytes_max: usize,
    /// Replies to writes that replicas have not confirmed, in order.
    pub unconfirmed: Unconfirmed,
    /// Something was left out, because the replies would have exceeded `bytes_max`.
    is_cut: bool,
}

impl Default for Out {
    fn default() -> Self {
        Out::new(false)
    }
}

/// A position in the replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark(usize);

impl Out {
    /// For a client of this version.
    pub fn new(is_resp3: bool) -> Self {
        Out {
            bytes: Vec::new(),
            is_resp3,
            bytes_max: REPLY_BYTES_MAX,
            unconfirmed: Unconfirmed::default(),
            is_cut: false,
        }
    }

    /// Takes all replies.
    pub fn take(&mut self) -> Self {
        Out {
            bytes: std::mem::take(&mut self.bytes),
            is_resp3: self.is_resp3,
            bytes_max: self.bytes_max,
            unconfirmed: std::mem::take(&mut self.unconfirmed),
            is_cut: std::mem::take(&mut self.is_cut),
        }
    }

    /// Removes all replies.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.unconfirmed.clear();
    }

    /// Puts earlier replies before these.
    pub fn prepend(&mut self, mut before: Out) {
        before.append(self);
        (self.bytes, self.unconfirmed) = (before.bytes, before.unconfirmed);
    }

    /// Adds the bytes of later replies. The others keep theirs.
    pub fn append(&mut self, later: &mut Out) {
        self.unconfirmed.append(&mut later.unconfirmed, self.bytes.len());
        self.bytes.extend_from_slice(&later.bytes);
    }

    /// Returns whether something did not fit. Then the reply is incomplete and has to be removed.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Checks that everything has fitted so far.
    ///
    /// # Errors
    /// If it has not.
    pub fn check(&self) -> Done {
        if self.is_cut { Err(self.too_large()) } else { Ok(()) }
    }

    /// The error of a reply that does not fit.
    pub fn too_large(&self) -> Fail {
        too_large(self.bytes_max)
    }

    /// Reserves memory for this many bytes. Returns false if they do not fit. The buffer never grows much
    /// beyond `bytes_max`.
    fn fits(&mut self, bytes: usize) -> bool {
        let need = self.bytes.len().saturating_add(bytes);
        self.is_cut |= need > self.bytes_max;
        if !self.is_cut && need > self.bytes.capacity() {
            let capacity = (2 * self.bytes.capacity()).min(self.bytes_max).max(need);
            self.bytes.reserve_exact(capacity - self.bytes.len());
        }
        !self.is_cut
    }

    /// Same as `is_cut`, and clears it.
    pub fn take_cut(&mut self) -> bool {
        std::mem::take(&mut self.is_cut)
    }

    fn line(&mut self, kind: u8, text: &[u8]) {
        if !self.fits(text.len() + 3) {
            return;
        }
        self.bytes.push(kind);
        self.bytes.extend_from_slice(text);
        self.bytes.extend_from_slice(b"\r\n");
    }

    fn head(&mut self, kind: u8, n: i64) {
        let mut digits = [0; 20];
        self.line(kind, format_int(n, &mut digits));
    }

    /// A short text.
    pub fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// A text that may be long, written in pieces. Line ends in it become spaces.
    ///
    /// # Errors
    /// Those of `step`, which is called before each piece.
    #[cfg(feature = "lua")]
    pub fn long_simple<E>(&mut self, text: &[u8], mut step: impl FnMut() -> Result<(), E>) -> Result<(), E> {
        if !self.fits(text.len() + 3) {
            return Ok(());
        }
        self.bytes.push(b'+');
        for piece in text.chunks(PIECE) {
            step()?;
            let start = self.bytes.len();
            self.bytes.extend_from_slice(piece);
            let ends = self.bytes[start..].iter_mut().filter(|byte| matches!(byte, b'\r' | b'\n'));
            ends.for_each(|byte| *byte = b' ');
        }
        self.bytes.extend_from_slice(b"\r\n");
        Ok(())
    }

    /// `OK`.
    pub fn ok(&mut self) {
        self.bytes.extend_from_slice(b"+OK\r\n");
    }

    /// An error: code, space, message. A long text is cut.
    pub fn error(&mut self, text: &str) {
        let text = &text[..text.floor_char_boundary(ERROR_BYTES_MAX)];
        self.bytes.push(b'-');
        let clean = text.bytes().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte });
        self.bytes.extend(clean);
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// A number.
    pub fn int(&mut self, n: i64) {
        self.head(b':', n);
    }

    /// A count.
    pub fn count(&mut self, n: usize) {
        self.int(n as i64);
    }

    /// Bytes.
    pub fn bulk(&mut self, bytes: &[u8]) {
        if !self.fits(bytes.len() + 32) {
            return;
        }
        self.head(b'$', bytes.len() as i64);
        self.bytes.extend_from_slice(bytes);
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// A number as bytes.
    pub fn bulk_int(&mut self, n: i64) {
        let mut digits = [0; 20];
        let text = format_int(n, &mut digits);
        self.head(b'$', text.len() as i64);
        self.bytes.extend_from_slice(text);
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// Bytes, or null.
    pub fn bulk_or_null(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => self.bulk(bytes),
            None => self.null(),
        }
    }

    /// Null.
    pub fn null(&mut self) {
        self.bytes.extend_from_slice(if self.is_resp3 { b"_\r\n" } else { b"$-1\r\n" });
    }

    /// A null array.
    pub fn null_array(&mut self) {
        self.bytes.extend_from_slice(if self.is_resp3 { b"_\r\n" } else { b"*-1\r\n" });
    }

    /// Begins a list of `n` replies.
    pub fn array(&mut self, n: usize) {
        self.head(b'*', n as i64);
    }

    /// Begins `n` named lists: a map in RESP3, an array of pairs in RESP2.
    pub fn begin_lists(&mut self, n: usize) {
        if self.is_resp3 { self.map(n) } else { self.array(n) }
    }

    /// Begins one of them. Its list follows.
    pub fn begin_list_of(&mut self, name: &[u8]) {
        if !self.is_resp3 {
            self.array(2);
        }
        self.bulk(name);
    }

    /// Begins a map of `n` pairs of replies.
    pub fn map(&mut self, n: usize) {
        if self.is_resp3 { self.head(b'%', n as i64) } else { self.head(b'*', 2 * n as i64) }
    }

    /// Begins a set of `n` replies.
    pub fn set(&mut self, n: usize) {
        self.head(if self.is_resp3 { b'~' } else { b'*' }, n as i64);
    }

    /// Begins a message of `n` replies that answers no request.
    pub fn push(&mut self, n: usize) {
        self.head(if self.is_resp3 { b'>' } else { b'*' }, n as i64);
    }

    /// A number with a fraction.
    pub fn double(&mut self, n: f64) {
        self.double_of(&format_double(n));
    }

    /// A number with a fraction, given as digits.
    pub fn double_of(&mut self, digits: &str) {
        if self.is_resp3 { self.line(b',', digits.as_bytes()) } else { self.bulk(digits.as_bytes()) }
    }

    /// Yes or no.
    pub fn bool(&mut self, yes: bool) {
        match (self.is_resp3, yes) {
            (true, true) => self.bytes.extend_from_slice(b"#t\r\n"),
            (true, false) => self.bytes.extend_from_slice(b"#f\r\n"),
            (false, yes) => self.int(i64::from(yes)),
        }
    }

    /// A text to be shown as it is.
    pub fn verbatim(&mut self, text: &str) {
        if self.is_resp3 {
            self.head(b'=', text.len() as i64 + 4);
            self.bytes.extend_from_slice(b"txt:");
            self.bytes.extend_from_slice(text.as_bytes());
            self.bytes.extend_from_slice(b"\r\n");
        } else {
            self.bulk(text.as_bytes());
        }
    }

    /// The position of the next reply.
    pub fn mark(&self) -> Mark {
        Mark(self.bytes.len())
    }

    /// Removes the replies since a position.
    pub fn truncate(&mut self, mark: Mark) {
        self.bytes.truncate(mark.0);
    }

    /// The replies since a position.
    pub fn since(&self, mark: Mark) -> &[u8] {
        &self.bytes[mark.0..]
    }

    /// Inserts the head of a list before the replies since a position.
    pub fn array_at(&mut self, mark: Mark, n: usize) {
        self.insert_head(mark, |out| out.array(n));
    }

    /// Inserts the head of a set before the replies since a position.
    pub fn set_at(&mut self, mark: Mark, n: usize) {
        self.insert_head(mark, |out| out.set(n));
    }

    /// Inserts the head of a map before the replies since a position.
    pub fn map_at(&mut self, mark: Mark, n: usize) {
        self.insert_head(mark, |out| out.map(n));
    }

    fn insert_head(&mut self, mark: Mark, head: impl FnOnce(&mut Out)) {
        let end = self.bytes.len();
        head(self);
        if self.is_cut {
            return;
        }
        let len = self.bytes.len() - end;
        self.bytes[mark.0..].rotate_right(len);
    }
}

/// The digits of a number, in a buffer.
pub fn format_int(n: i64, digits: &mut [u8; 20]) -> &[u8] {
    let mut at = digits.len();
    let mut rest = n.unsigned_abs();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if n < 0 {
        at -= 1;
        digits[at] = b'-';
    }
    &digits[at..]
}

/// The shortest exact form of a number, with an exponent where that is shorter.
pub fn format_double(n: f64) -> String {
    if n.is_nan() {
        return "nan".to_owned();
    }
    if n.is_infinite() {
        return if n > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let size = n.abs();
    if n == 0.0 {
        return if n.is_sign_negative() { "-0" } else { "0" }.to_owned();
    }
    if (1e-4..1e17).contains(&size) {
        return format!("{n}");
    }
    let text = format!("{n:e}");
    match text.split_once('e') {
        Some((digits, exponent)) => {
            let (sign, exponent) = match exponent.strip_prefix('-') {
                Some(exponent) => ('-', exponent),
                None => ('+', exponent),
            };
            format!("{digits}e{sign}{exponent:0>2}")
        }
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(is_resp3: bool, say: impl FnOnce(&mut Out)) -> String {
        let mut out = Out::new(is_resp3);
        say(&mut out);
        String::from_utf8(out.bytes).unwrap()
    }

    #[test]
    fn both_versions_of_the_protocol() {
        let all = |out: &mut Out| {
            out.null();
            out.map(1);
            out.set(1);
            out.double(1.5);
            out.bool(true);
            out.verbatim("x");
        };
        assert_eq!(said(false, all), "$-1\r\n*2\r\n*1\r\n$3\r\n1.5\r\n:1\r\n$1\r\nx\r\n");
        assert_eq!(said(true, all), "_\r\n%1\r\n~1\r\n,1.5\r\n#t\r\n=5\r\ntxt:x\r\n");
        assert_eq!(said(false, |out| out.error("ERR a\r\nb")), "-ERR a  b\r\n");
    }

    #[test]
    fn command_memory_1_what_does_not_fit_is_left_out() {
        let mut out = Out { bytes_max: 100, ..Out::new(false) };
        (0..20).for_each(|n| out.int(n));
        assert!(out.check().is_ok() && out.bytes.capacity() <= 100);
        out.bulk(&[b'x'; 100]);
        assert!(out.is_cut() && out.bytes.capacity() <= 100);
        let len = out.bytes.len();
        out.int(1);
        assert_eq!(out.bytes.len(), len);
        assert_eq!(
            out.check().unwrap_err().message(),
            "ERR the reply is larger than 100 bytes: ask for less at a time"
        );
        let mut out = Out { bytes_max: 100, ..Out::new(false) };
        (0..1000).for_each(|n| out.int(n));
        assert!(out.is_cut() && out.bytes.len() <= 100);
        assert_eq!(said(false, |out| out.error(&"\u{e4}".repeat(1 << 20))).len(), (64 << 10) + 3);
    }

    #[test]
    fn a_head_comes_before_what_is_there() {
        let text = said(false, |out| {
            out.ok();
            let mark = out.mark();
            out.int(1);
            out.int(-20);
            out.array_at(mark, 2);
        });
        assert_eq!(text, "+OK\r\n*2\r\n:1\r\n:-20\r\n");
    }

    #[test]
    fn numbers_are_exact() {
        let mut digits = [0; 20];
        for n in [0, 7, -7, i64::MAX, i64::MIN] {
            assert_eq!(format_int(n, &mut digits), n.to_string().as_bytes());
        }
        let cases = [
            (0.1, "0.1"),
            (3.0, "3"),
            (-0.0, "-0"),
            (1e20, "1e+20"),
            (1.5e-7, "1.5e-07"),
            (1e16, "10000000000000000"),
        ];
        for (n, text) in cases {
            assert_eq!(format_double(n), text);
        }
    }
}
