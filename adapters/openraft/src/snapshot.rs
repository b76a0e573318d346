//! The bytes of a snapshot: the entries of the program's keyspaces at one commit.
//!
//! ```text
//!   "ESKRAFT1" | number of keyspaces: u32 | entries
//!   entry: keyspace: u32 | key length: u32 | value length: u32 | key | value
//! ```
//!
//! Numbers are little-endian. A keyspace is a position in what `Machine::keyspaces` returns.

use esker::{Keyspace, Transaction};

use crate::error::Error;

const MAGIC: &[u8; 8] = b"ESKRAFT1";

/// Writes the entries of these keyspaces.
pub(crate) fn write(state: &esker::Snapshot, keyspaces: &[Keyspace]) -> Result<Vec<u8>, Error> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(number(keyspaces.len()));
    for (position, keyspace) in keyspaces.iter().enumerate() {
        for entry in state.iter(keyspace) {
            let (key, value) = entry?;
            bytes.extend(number(position));
            bytes.extend(number(key.len()));
            bytes.extend(number(value.len()));
            bytes.extend_from_slice(&key);
            bytes.extend_from_slice(&value);
        }
    }
    Ok(bytes)
}

/// Replaces the content of these keyspaces by that of a snapshot.
pub(crate) fn read(bytes: &[u8], t: &mut Transaction, keyspaces: &[Keyspace]) -> Result<(), Error> {
    let mut rest = Rest { bytes, offset: 0 };
    if rest.take(MAGIC.len())? != MAGIC {
        return Err(rest.bad("it is not a snapshot of esker-openraft"));
    }
    if rest.number()? != keyspaces.len() {
        return Err(rest.bad("it has another number of keyspaces"));
    }
    for keyspace in keyspaces {
        t.clear(keyspace)?;
    }
    while rest.offset < bytes.len() {
        let (position, key_len, value_len) = (rest.number()?, rest.number()?, rest.number()?);
        let Some(keyspace) = keyspaces.get(position) else { return Err(rest.bad("no such keyspace")) };
        let key = rest.take(key_len)?;
        t.put(keyspace, key, rest.take(value_len)?)?;
    }
    Ok(())
}

/// A length as four bytes. Keys and values of the engine are shorter than 4 GiB.
fn number(of: usize) -> [u8; 4] {
    u32::try_from(of).expect("the engine has no longer values").to_le_bytes()
}

struct Rest<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Rest<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], Error> {
        let taken = self.offset.checked_add(len).and_then(|end| self.bytes.get(self.offset..end));
        let taken = taken.ok_or_else(|| self.bad("it ends too early"))?;
        self.offset += len;
        Ok(taken)
    }

    fn number(&mut self) -> Result<usize, Error> {
        let bytes = self.take(4)?.try_into().map_err(|_| self.bad("it ends too early"))?;
        Ok(u32::from_le_bytes(bytes) as usize)
    }

    fn bad(&self, detail: &'static str) -> Error {
        Error::Snapshot { offset: self.offset, detail }
    }
}

#[cfg(test)]
mod tests {
    use esker::Db;

    use super::*;

    #[test]
    fn damaged_snapshots_are_refused_and_change_nothing() {
        let db = Db::in_memory().unwrap();
        let keyspaces = [db.keyspace("a").unwrap(), db.keyspace("b").unwrap()];
        keyspaces[0].put("k", "v").unwrap();
        keyspaces[1].put("key", "value").unwrap();
        let good = write(&db.snapshot(), &keyspaces).unwrap();
        let ends_of_entries = [12, 12 + 12 + 2];
        for len in (0..good.len()).filter(|len| !ends_of_entries.contains(len)) {
            let done = db.transact(|t| read(&good[..len], t, &keyspaces));
            assert!(matches!(done, Err(Error::Snapshot { .. })), "{len}: {done:?}");
        }
        for (at, value) in [(0, b'x'), (8, 3), (12, 2), (16, 255), (20, 255)] {
            let mut bad = good.clone();
            bad[at] = value;
            let done = db.transact(|t| read(&bad, t, &keyspaces));
            assert!(matches!(done, Err(Error::Snapshot { .. })), "{at}: {done:?}");
        }
        assert_eq!(write(&db.snapshot(), &keyspaces).unwrap(), good);
        keyspaces[0].put("other", "v").unwrap();
        db.transact(|t| read(&good, t, &keyspaces)).unwrap();
        assert_eq!(write(&db.snapshot(), &keyspaces).unwrap(), good);
    }
}
