//! Writes calls with the replies of the model: the lines of the conformance file.

use std::fmt::Write as _;

use esker_tuple::{Element, Elements};

use super::model::{Bytes, Entry, Keyspace, Kind, Model, Operator, Write, behind_prefix, number};

/// One line: a JSON object whose members keep their order.
pub struct Line(String);

impl Line {
    fn new(call: &str) -> Line {
        Line(format!("{{\"do\":\"{call}\""))
    }

    /// Appends a member with a JSON value.
    fn json(mut self, name: &str, value: &str) -> Line {
        let _ = write!(self.0, ",\"{name}\":{value}");
        self
    }

    fn text(self, name: &str, value: &str) -> Line {
        self.json(name, &format!("\"{value}\""))
    }

    fn bytes(self, name: &str, value: &[u8]) -> Line {
        self.text(name, &hex(value))
    }

    fn maybe(self, name: &str, value: Option<&[u8]>) -> Line {
        self.json(name, &json_bytes(value))
    }

    fn txn(self, txn: Option<u64>) -> Line {
        match txn {
            Some(txn) => self.json("txn", &txn.to_string()),
            None => self,
        }
    }
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn json_bytes(value: Option<&[u8]>) -> String {
    value.map_or("null".to_owned(), |value| format!("\"{}\"", hex(value)))
}

fn json_list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(","))
}

/// Where a call reads or writes: a keyspace, in a transaction or not.
#[derive(Clone, Copy)]
pub struct At<'a> {
    pub keyspace: &'a str,
    pub txn: Option<u64>,
}

/// What a scan covers.
pub enum Span<'a> {
    Range(Option<&'a [u8]>, Option<&'a [u8]>),
    Prefix(&'a [u8]),
}

/// The lines so far, and what the database holds after them.
#[derive(Default)]
pub struct Script {
    pub model: Model,
    pub text: String,
    mark: usize,
}

impl Script {
    /// A script for a new database.
    pub fn new() -> Script {
        let mut script = Script::default();
        script.model.keyspaces.insert("default".to_owned(), Keyspace::default());
        script
    }

    fn add(&mut self, line: Line) {
        self.text.push_str(&line.0);
        self.text.push_str("}\n");
    }

    fn at(call: &str, at: At<'_>) -> Line {
        Line::new(call).txn(at.txn).text("keyspace", at.keyspace)
    }

    /// A call that fails.
    pub fn fails(&mut self, call: &str, members: &[(&str, &str)], error: &str) {
        let line = members.iter().fold(Line::new(call), |line, (name, value)| line.json(name, value));
        self.add(line.text("error", error));
    }

    pub fn keyspace(&mut self, name: &str) {
        self.model.keyspaces.entry(name.to_owned()).or_default();
        self.add(Line::new("keyspace").text("keyspace", name));
    }

    pub fn rename(&mut self, from: &str, to: &str) {
        let moved: Keyspace = self.model.keyspaces.remove(from).expect("a keyspace");
        self.model.keyspaces.insert(to.to_owned(), moved);
        self.add(Line::new("rename").text("from", from).text("to", to));
    }

    pub fn drop(&mut self, name: &str) {
        self.model.keyspaces.remove(name).expect("a keyspace");
        self.add(Line::new("drop").text("keyspace", name));
    }

    pub fn names(&mut self) {
        let names = json_list(self.model.names().into_iter().map(|name| format!("\"{name}\"")));
        self.add(Line::new("names").json("is", &names));
    }

    pub fn operator(&mut self, name: &str, operator: Operator) {
        self.model.keyspaces.get_mut(name).expect("a keyspace").operator = Some(operator);
        let operator = if operator == Operator::AddI64 { "add-i64" } else { "append" };
        self.add(Line::new("operator").text("keyspace", name).text("operator", operator));
    }

    pub fn put(&mut self, at: At<'_>, key: &[u8], value: &[u8]) {
        let write = Write::Put { key: key.to_vec(), value: value.to_vec(), expires: false };
        self.model.write(at.txn, at.keyspace, write);
        self.add(Self::at("put", at).bytes("key", key).bytes("value", value));
    }

    /// Sets a key whose value expires after an hour.
    pub fn put_for_an_hour(&mut self, at: At<'_>, key: &[u8], value: &[u8]) {
        let write = Write::Put { key: key.to_vec(), value: value.to_vec(), expires: true };
        self.model.write(at.txn, at.keyspace, write);
        let line = Self::at("put", at).bytes("key", key).bytes("value", value);
        self.add(line.json("ttl_ms", "3600000"));
    }

    /// Sets a key whose value expires at once, and waits for that.
    pub fn put_briefly(&mut self, at: At<'_>, key: &[u8], value: &[u8]) {
        let line = Self::at("put", at).bytes("key", key).bytes("value", value);
        self.add(line.json("ttl_ms", "1"));
        self.add(Line::new("sleep").json("ms", "30"));
        self.model.write(at.txn, at.keyspace, Write::Delete { key: key.to_vec() });
    }

    pub fn get(&mut self, at: At<'_>, key: &[u8]) {
        let entry = self.model.get(at.txn, at.keyspace, key);
        let value = entry.as_ref().map(|entry| &entry.value[..]);
        self.add(Self::at("get", at).bytes("key", key).maybe("is", value));
    }

    pub fn contains(&mut self, at: At<'_>, key: &[u8]) {
        let is = self.model.get(at.txn, at.keyspace, key).is_some();
        self.add(Self::at("contains", at).bytes("key", key).json("is", &is.to_string()));
    }

    pub fn many(&mut self, at: At<'_>, keys: &[Bytes]) {
        let mut values = Vec::new();
        for key in keys {
            let entry = self.model.get(at.txn, at.keyspace, key);
            values.push(json_bytes(entry.as_ref().map(|entry| &entry.value[..])));
        }
        let keys = json_list(keys.iter().map(|key| json_bytes(Some(key))));
        self.add(Self::at("many", at).json("keys", &keys).json("is", &json_list(values.into_iter())));
    }

    pub fn ttl(&mut self, at: At<'_>, key: &[u8]) {
        let is = match self.model.get(at.txn, at.keyspace, key) {
            None => "missing",
            Some(Entry { expires: false, .. }) => "none",
            Some(Entry { expires: true, .. }) => "some",
        };
        self.add(Self::at("ttl", at).bytes("key", key).text("is", is));
    }

    pub fn delete(&mut self, at: At<'_>, key: &[u8]) {
        self.model.write(at.txn, at.keyspace, Write::Delete { key: key.to_vec() });
        self.add(Self::at("delete", at).bytes("key", key));
    }

    pub fn remove(&mut self, at: At<'_>, key: &[u8]) {
        let was = self.model.get(at.txn, at.keyspace, key);
        if was.is_some() {
            self.model.write(at.txn, at.keyspace, Write::Delete { key: key.to_vec() });
        }
        let was = was.as_ref().map(|entry| &entry.value[..]);
        self.add(Self::at("remove", at).bytes("key", key).maybe("is", was));
    }

    pub fn delete_range(&mut self, at: At<'_>, start: Option<&[u8]>, end: Option<&[u8]>) {
        let owned = |bound: Option<&[u8]>| bound.map(<[u8]>::to_vec);
        let write = Write::DeleteRange { start: owned(start), end: owned(end) };
        self.model.write(at.txn, at.keyspace, write);
        self.add(Self::at("delete_range", at).maybe("start", start).maybe("end", end));
    }

    pub fn delete_prefix(&mut self, at: At<'_>, prefix: &[u8]) {
        let write = Write::DeleteRange { start: Some(prefix.to_vec()), end: behind_prefix(prefix) };
        self.model.write(at.txn, at.keyspace, write);
        self.add(Self::at("delete_prefix", at).bytes("prefix", prefix));
    }

    pub fn merge(&mut self, at: At<'_>, key: &[u8], operand: &[u8]) {
        let write = Write::Merge { key: key.to_vec(), operand: operand.to_vec() };
        self.model.write(at.txn, at.keyspace, write);
        self.add(Self::at("merge", at).bytes("key", key).bytes("operand", operand));
    }

    pub fn swap(&mut self, keyspace: &str, key: &[u8], expected: Option<&[u8]>, value: Option<&[u8]>) {
        let was = self.model.get(None, keyspace, key);
        let is = was.as_ref().map(|entry| &entry.value[..]) == expected;
        if is {
            let key = key.to_vec();
            let write = match value {
                Some(value) => Write::Put { key, value: value.to_vec(), expires: false },
                None => Write::Delete { key },
            };
            self.model.write(None, keyspace, write);
        }
        let line = Line::new("swap").text("keyspace", keyspace).bytes("key", key);
        self.add(line.maybe("expected", expected).maybe("value", value).json("is", &is.to_string()));
    }

    pub fn add_to(&mut self, at: At<'_>, key: &[u8], by: i64) {
        let entry = self.model.get(at.txn, at.keyspace, key);
        let old = entry.map_or(0, |entry| number(&entry.value));
        let value = old.wrapping_add(by).to_le_bytes().to_vec();
        self.model.write(at.txn, at.keyspace, Write::Put { key: key.to_vec(), value, expires: false });
        let line = Self::at("add", at).bytes("key", key).text("by", &by.to_string());
        self.add(line.text("is", &old.to_string()));
    }

    pub fn scan(&mut self, at: At<'_>, span: &Span<'_>, reverse: bool, limit: Option<usize>) {
        let line = Self::at("scan", at);
        let (line, mut entries) = match span {
            Span::Range(start, end) => (
                line.maybe("start", *start).maybe("end", *end),
                self.model.entries(at.txn, at.keyspace, *start, *end),
            ),
            Span::Prefix(prefix) => (
                line.bytes("prefix", prefix),
                self.model.entries(at.txn, at.keyspace, Some(prefix), behind_prefix(prefix).as_deref()),
            ),
        };
        if reverse {
            entries.reverse();
        }
        entries.truncate(limit.unwrap_or(usize::MAX));
        let is = entries
            .iter()
            .map(|(key, entry)| format!("[{},{}]", json_bytes(Some(key)), json_bytes(Some(&entry.value))));
        let limit = limit.map_or("null".to_owned(), |limit| limit.to_string());
        let line = line.json("reverse", &reverse.to_string()).json("limit", &limit);
        self.add(line.json("is", &json_list(is)));
    }

    pub fn len(&mut self, at: At<'_>) {
        let len = self.model.entries(at.txn, at.keyspace, None, None).len();
        self.add(Self::at("len", at).json("is", &len.to_string()));
    }

    pub fn begin(&mut self, txn: u64, kind: Kind) {
        self.model.begin(txn, kind);
        self.add(Line::new("begin").txn(Some(txn)).text("kind", kind.name()));
    }

    pub fn savepoint(&mut self, txn: u64, savepoint: u64) {
        self.model.savepoint(txn, savepoint);
        self.add(Line::new("savepoint").txn(Some(txn)).json("savepoint", &savepoint.to_string()));
    }

    pub fn rollback_to(&mut self, txn: u64, savepoint: u64) {
        self.model.rollback_to(txn, savepoint);
        self.add(Line::new("rollback_to").txn(Some(txn)).json("savepoint", &savepoint.to_string()));
    }

    pub fn commit(&mut self, txn: u64) {
        let line = Line::new("commit").txn(Some(txn));
        let line = if self.model.commit(txn) { line } else { line.text("error", "conflict") };
        self.add(line);
    }

    pub fn rollback(&mut self, txn: u64) {
        self.model.rollback(txn);
        self.add(Line::new("rollback").txn(Some(txn)));
    }

    /// A call without arguments and effects on the contents: "reopen" or "checkpoint".
    pub fn restart(&mut self, call: &str) {
        assert!(self.model.txns.is_empty(), "no transaction outlives the database");
        self.add(Line::new(call));
    }

    pub fn mark(&mut self) {
        self.mark = self.model.commits.len();
        self.add(Line::new("mark"));
    }

    pub fn feed(&mut self) {
        let commits = self.model.commits[self.mark..].iter();
        let is =
            json_list(commits.map(|writes| json_list(writes.iter().map(|(ks, write)| change(ks, write)))));
        self.add(Line::new("feed").json("is", &is));
    }

    pub fn pack(&mut self, elements: Vec<Element>) {
        let fields = json_list(elements.iter().map(field));
        let packed = esker_tuple::encode(&Elements(elements)).expect("a tuple");
        self.add(Line::new("pack").json("fields", &fields).bytes("is", &packed));
    }
}

fn change(keyspace: &str, write: &Write) -> String {
    let (kind, key, value) = match write {
        Write::Put { key, value, .. } => ("put", Some(key), Some(value)),
        Write::Merge { key, operand } => ("merge", Some(key), Some(operand)),
        Write::Delete { key } => ("delete", Some(key), None),
        Write::DeleteRange { start, end } => ("delete_range", start.as_ref(), end.as_ref()),
    };
    let hex = |bytes: Option<&Bytes>| json_bytes(bytes.map(|bytes| &bytes[..]));
    format!(
        "{{\"change\":\"{kind}\",\"keyspace\":\"{keyspace}\",\"key\":{},\"value\":{}}}",
        hex(key),
        hex(value)
    )
}

fn field(element: &Element) -> String {
    let tagged = |tag: &str, value: &str| format!("{{\"{tag}\":\"{value}\"}}");
    match element {
        Element::Null => "null".to_owned(),
        Element::Bytes(bytes) => tagged("bytes", &hex(bytes)),
        Element::Text(text) => format!("{{\"text\":{}}}", json_text(text)),
        Element::Tuple(elements) => format!("{{\"tuple\":{}}}", json_list(elements.iter().map(field))),
        Element::Int(number) => tagged("int", &number.to_string()),
        Element::Float(number) => tagged("float", &hex(&number.to_be_bytes())),
        Element::Double(number) => tagged("double", &hex(&number.to_be_bytes())),
        Element::Bool(yes) => format!("{{\"bool\":{yes}}}"),
        Element::Uuid(uuid) => tagged("uuid", &hex(uuid)),
        other => panic!("{other:?} is not in every language"),
    }
}

/// A JSON string in ASCII.
fn json_text(text: &str) -> String {
    let mut json = String::from("\"");
    for unit in text.encode_utf16() {
        match u8::try_from(unit) {
            Ok(byte) if (b' '..0x7F).contains(&byte) && byte != b'"' && byte != b'\\' => {
                json.push(char::from(byte));
            }
            _ => {
                let _ = write!(json, "\\u{unit:04x}");
            }
        }
    }
    json.push('"');
    json
}
