//! Fields of a version edit: how each is written under its tags, read, merged with that of a later edit, and
//! shown.
//!
//! Bytes: docs/formats/manifest.md

use crate::encoding::bytes::{ByteReader, Decoded, put_varint, unzigzag, zigzag};
use crate::manifest::level::RunId;
use crate::types::dump_value::DumpValue;
use crate::types::{FileId, KeyspaceId, SeqNo};

/// The values of an item as dumps show them, without names: a row for each element of a list in it.
pub(super) type Rows = Vec<Vec<DumpValue>>;

/// A field.
pub(super) trait Field {
    /// Appends its content, each time behind a tag. `tag`: the first of its tags.
    fn encode(&self, tag: u64, out: &mut Vec<u8>);

    /// Adds what stands behind one of its tags.
    fn decode(&mut self, tag: u64, reader: &mut ByteReader<'_>) -> Decoded<()>;

    /// Takes over what a later edit says.
    fn merge(&mut self, later: Self);

    fn rows(&self) -> Rows;
}

/// What stands behind a tag.
pub(super) trait Item: Sized {
    fn put(&self, out: &mut Vec<u8>);
    fn read(reader: &mut ByteReader<'_>) -> Decoded<Self>;
    fn rows(&self) -> Rows;
}

/// A field of items, each behind a tag of its own.
macro_rules! items {
    ($type:ident, |$old:ident, $item:ident| $add:expr, |$later:ident| $merge:expr) => {
        impl<T: Item> Field for $type<T> {
            fn encode(&self, tag: u64, out: &mut Vec<u8>) {
                for item in self.iter() {
                    put_varint(out, tag);
                    item.put(out);
                }
            }

            fn decode(&mut self, _tag: u64, reader: &mut ByteReader<'_>) -> Decoded<()> {
                let ($old, $item) = (self, T::read(reader)?);
                $add;
                Ok(())
            }

            fn merge(&mut self, $later: Self) {
                let $old = self;
                $merge;
            }

            fn rows(&self) -> Rows {
                self.iter().flat_map(T::rows).collect()
            }
        }
    };
}

items!(Option, |old, item| *old = Some(item), |later| *old = later.or(old.take()));
items!(Vec, |old, item| old.push(item), |later| old.extend(later));

/// A field of one list behind one tag, which is absent if the list is empty.
macro_rules! list {
    ($type:ty, |$list:ident| $items:expr, |$add:ident: $item:ty| $added:expr) => {
        impl Field for $type {
            fn encode(&self, tag: u64, out: &mut Vec<u8>) {
                if !self.is_empty() {
                    put_varint(out, tag);
                    let $list = self;
                    Item::put(&$items.collect::<Vec<$item>>(), out);
                }
            }

            fn decode(&mut self, _tag: u64, reader: &mut ByteReader<'_>) -> Decoded<()> {
                let $list = self;
                <Vec<$item> as Item>::read(reader)?.into_iter().for_each(|$add| $added);
                Ok(())
            }

            fn merge(&mut self, later: Self) {
                self.extend(&later);
            }

            fn rows(&self) -> Rows {
                let $list = self;
                Item::rows(&$items.collect::<Vec<$item>>())
            }
        }
    };
}
pub(super) use list;

impl<T: Item> Item for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.len() as u64);
        self.iter().for_each(|item| item.put(out));
    }

    fn read(reader: &mut ByteReader<'_>) -> Decoded<Self> {
        (0..reader.varint()?).map(|_| T::read(reader)).collect()
    }

    fn rows(&self) -> Rows {
        self.iter().flat_map(T::rows).collect()
    }
}

/// An item of several: a struct with these fields, or a tuple.
macro_rules! parts {
    ($type:ty { $($part:tt $read:ident),* } $made:expr) => {
        impl Item for $type {
            fn put(&self, out: &mut Vec<u8>) {
                $(Item::put(&self.$part, out);)*
            }

            fn read(reader: &mut ByteReader<'_>) -> Decoded<Self> {
                $(let $read = Item::read(reader)?;)*
                Ok($made)
            }

            fn rows(&self) -> Rows {
                let mut rows: Rows = vec![Vec::new()];
                for part in [$(Item::rows(&self.$part)),*] {
                    let with = |row: &Vec<DumpValue>| {
                        part.iter().map(|more| [&row[..], more].concat()).collect::<Rows>()
                    };
                    rows = rows.iter().flat_map(with).collect();
                }
                rows
            }
        }
    };
}
pub(super) use parts;

parts!((FileId, FileId) { 0 named, 1 file } (named, file));
parts!((FileId, RunId) { 0 file, 1 run } (file, run));
parts!((KeyspaceId, u64) { 0 keyspace, 1 keys } (keyspace, keys));
parts!((KeyspaceId, i64) { 0 keyspace, 1 delta } (keyspace, delta));
parts!((KeyspaceId, SeqNo) { 0 keyspace, 1 seq } (keyspace, seq));
parts!((KeyspaceId, SeqNo, u64) { 0 keyspace, 1 seq, 2 keys } (keyspace, seq, keys));
parts!((u64, SeqNo) { 0 ms, 1 seq } (ms, seq));

/// An item that is stored as a varint. `of`: fails with the message, after the number.
macro_rules! number {
    ($type:ty, |$value:ident| $number:expr, |$n:ident| $of:expr, $wrong:literal) => {
        impl Item for $type {
            fn put(&self, out: &mut Vec<u8>) {
                let $value = *self;
                put_varint(out, $number);
            }

            fn read(reader: &mut ByteReader<'_>) -> Decoded<Self> {
                let $n = reader.varint()?;
                $of.ok_or_else(|| reader.error(format!("{} {}", $n, $wrong)))
            }

            fn rows(&self) -> Rows {
                let $value = *self;
                vec![vec![DumpValue::Number($number)]]
            }
        }
    };
}

number!(u64, |n| n, |n| Some(n), "is no number");
number!(u32, |n| u64::from(n), |n| u32::try_from(n).ok(), "has more than 32 bits");
number!(i64, |n| zigzag(n), |n| Some(unzigzag(n)), "is no number");
number!(
    KeyspaceId,
    |id| id.get().into(),
    |n| u32::try_from(n).ok().map(KeyspaceId::new),
    "has more than 32 bits"
);
number!(FileId, |id| id.get(), |n| Some(FileId::new(n)), "is no file");
number!(RunId, |run| run.0, |n| Some(RunId(n)), "is no run");
number!(SeqNo, |seq| seq.get(), |n| SeqNo::try_new(n), "is a sequence number of more than 56 bits");
