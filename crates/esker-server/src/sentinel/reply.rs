//! Replies of a sentinel, in version 2 or 3 of the protocol.

/// Replies on their way to a connection.
pub(super) struct Reply {
    pub(super) bytes: Vec<u8>,
    /// The protocol has maps, pushes and a null of its own.
    pub(super) is_3: bool,
}

impl Reply {
    pub(super) fn new(is_3: bool) -> Self {
        Reply { bytes: Vec::new(), is_3 }
    }

    /// Writes a line: a status, a number, or the head of something longer.
    pub(super) fn line(&mut self, text: &str) {
        self.bytes.extend_from_slice(text.as_bytes());
        self.bytes.extend_from_slice(b"\r\n");
    }

    pub(super) fn error(&mut self, text: &str) {
        self.line(&format!("-{}", text.replace(['\r', '\n'], " ")));
    }

    pub(super) fn bulk(&mut self, bytes: &[u8]) {
        self.line(&format!("${}", bytes.len()));
        self.bytes.extend_from_slice(bytes);
        self.bytes.extend_from_slice(b"\r\n");
    }

    pub(super) fn null_array(&mut self) {
        self.line(if self.is_3 { "_" } else { "*-1" });
    }

    pub(super) fn head(&mut self, len: usize) {
        self.line(&format!("*{len}"));
    }

    pub(super) fn array(&mut self, items: &[&[u8]]) {
        self.head(items.len());
        items.iter().for_each(|item| self.bulk(item));
    }

    pub(super) fn map(&mut self, len: usize) {
        match self.is_3 {
            true => self.line(&format!("%{len}")),
            false => self.head(len * 2),
        }
    }

    pub(super) fn pairs(&mut self, pairs: &[(&str, String)]) {
        self.map(pairs.len());
        for (name, value) in pairs {
            self.bulk(name.as_bytes());
            self.bulk(value.as_bytes());
        }
    }

    /// Writes the head of a message that no request asked for.
    pub(super) fn push(&mut self, len: usize) {
        self.line(&format!("{}{len}", if self.is_3 { '>' } else { '*' }));
    }
}
