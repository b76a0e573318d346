//! Reads a snapshot from its first byte to its checksum.
//!
//! ```text
//!   "REDIS" version (4 digits) | opcode ... | type key value | ... | 255 | CRC-64 (8)
//! ```
//!
//! rdb.1. Nothing behind the checksum is read: in replication, commands follow it.

use std::io::Read;

use crate::error::{Error, Result, VERSION_MAX};
use crate::input::Input;
use crate::value::{self, MODULE, Value};

/// The first version that ends with a checksum.
const VERSION_WITH_CHECKSUM: u32 = 5;

const SLOT: u8 = 244;
const LIBRARY: u8 = 245;
const LIBRARY_EARLY: u8 = 246;
const MODULE_DATA: u8 = 247;
const IDLE: u8 = 248;
const FREQUENCY: u8 = 249;
const AUXILIARY: u8 = 250;
const SIZES: u8 = 251;
const EXPIRES_MS: u8 = 252;
const EXPIRES: u8 = 253;
const DATABASE: u8 = 254;
const END: u8 = 255;

/// What a snapshot has, in the order of the file.
#[derive(Debug, Clone, PartialEq)]
pub enum Item {
    /// The keys that follow are in this database.
    Database(u64),
    /// The source of a library of functions.
    Library(Vec<u8>),
    /// Data of a module that belongs to no key. It was passed over.
    ModuleData(String),
    /// A key.
    Key(Box<Key>),
}

/// A key with its value.
#[derive(Debug, Clone, PartialEq)]
pub struct Key {
    /// Its name.
    pub name: Vec<u8>,
    /// Its value.
    pub value: Value,
    /// When it expires, in Unix milliseconds; 0: never.
    pub expires_ms: u64,
}

/// Reads a snapshot.
#[derive(Debug)]
pub struct Reader<R> {
    input: Input<R>,
    version: u32,
    is_over: bool,
}

impl<R: Read> Reader<R> {
    /// Reads the head of a snapshot.
    ///
    /// # Errors
    /// [`Error::Damaged`] if it is none, [`Error::Version`] if its version is not known.
    pub fn new(input: R) -> Result<Self> {
        let mut input = Input::new(input, u64::MAX);
        let head = input.array::<9>()?;
        let version = head.strip_prefix(b"REDIS").filter(|version| version.iter().all(u8::is_ascii_digit));
        let Some(version) = version else {
            return Err(match head.strip_prefix(b"VALKEY") {
                Some(version) => Error::Version(format!("{} of Valkey", version.escape_ascii())),
                None => Error::Damaged { offset: 0, problem: "this is no snapshot of Redis or Valkey" },
            });
        };
        let version = version.iter().fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0'));
        match version {
            1..=VERSION_MAX => Ok(Reader { input, version, is_over: false }),
            _ => Err(Error::Version(version.to_string())),
        }
    }

    /// Returns the number of bytes read.
    pub fn offset(&self) -> u64 {
        self.input.offset()
    }

    /// Returns the next item, or `None` after the checksum.
    ///
    /// # Errors
    /// Any [`Error`]. An error in a value names the key.
    pub fn read(&mut self) -> Result<Option<Item>> {
        let mut expires_ms = 0;
        while !self.is_over {
            let input = &mut self.input;
            match input.byte()? {
                EXPIRES_MS => expires_ms = input.u64()?,
                EXPIRES => expires_ms = u64::from(u32::from_le_bytes(input.array()?)) * 1000,
                IDLE => drop(input.length()?),
                FREQUENCY => drop(input.byte()?),
                AUXILIARY => drop((input.string()?, input.string()?)),
                SIZES => drop((input.length()?, input.length()?)),
                SLOT => drop((input.length()?, input.length()?, input.length()?)),
                DATABASE => return input.length().map(Item::Database).map(Some),
                LIBRARY => return input.string().map(Item::Library).map(Some),
                LIBRARY_EARLY => return Err(input.damaged("a library in the format of a release candidate")),
                MODULE_DATA => return module_data(input).map(Some),
                END => self.end()?,
                number => {
                    let name = input.string()?;
                    let value = value::read(input, number);
                    let value = value.map_err(|e| Error::Key { key: name.clone(), source: Box::new(e) })?;
                    return Ok(Some(Item::Key(Box::new(Key { name, value, expires_ms }))));
                }
            }
        }
        Ok(None)
    }

    /// Verifies the checksum. 0 stands for none.
    fn end(&mut self) -> Result<()> {
        self.is_over = true;
        if self.version < VERSION_WITH_CHECKSUM {
            return Ok(());
        }
        let (sum, offset) = (self.input.sum(), self.input.offset());
        match self.input.u64()? {
            stated if stated == 0 || stated == sum => Ok(()),
            _ => Err(Error::Checksum { offset }),
        }
    }
}

/// Passes over the data of a module: numbered parts up to a 0.
fn module_data<R: Read>(input: &mut Input<R>) -> Result<Item> {
    let name = value::module_name(input.length()?);
    let (_opcode, _when) = (input.length()?, input.length()?);
    loop {
        match input.length()? {
            0 => return Ok(Item::ModuleData(name)),
            1 | 2 => drop(input.length()?),
            3 => drop(input.array::<4>()?),
            4 => drop(input.array::<8>()?),
            5 => drop(input.string()?),
            _ => return Err(Error::Type { offset: input.offset(), number: MODULE, module: Some(name) }),
        }
    }
}

#[cfg(test)]
mod tests;
