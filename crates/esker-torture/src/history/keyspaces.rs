//! The keyspaces that clients use.

use esker::{Db, Keyspace};

use super::guests::Guests;
use super::list_store::ListStore;
use esker_world::failure::Result;

/// Number of accounts of the bank.
pub(super) const ACCOUNTS: u8 = 6;
const DEPOSIT: u64 = 100;
/// Total amount of money.
pub(crate) const MONEY: u64 = ACCOUNTS as u64 * DEPOSIT;

/// The keyspaces that clients use.
pub(crate) struct Keyspaces {
    pub(crate) db: Db,
    pub(super) registers: Keyspace,
    pub(super) lists: ListStore,
    pub(super) bank: Keyspace,
    pub(super) counter: Keyspace,
    pub(super) forks: Keyspace,
    pub(super) ballast: Keyspace,
    pub(super) guests: Guests,
}

impl Keyspaces {
    /// Opens the keyspaces, and deposits the money unless an earlier life has seen it.
    pub(crate) fn new(db: &Db, has_money: bool) -> Result<Self> {
        let bank = db.keyspace("bank")?;
        if !has_money && bank.is_empty()? {
            let mut batch = db.batch();
            for account in 0..ACCOUNTS {
                batch.put(&bank, [account], DEPOSIT.to_le_bytes())?;
            }
            batch.commit_with(esker::Durability::Sync)?;
        }
        Ok(Keyspaces {
            db: db.clone(),
            registers: db.keyspace("registers")?,
            lists: ListStore::new(db)?,
            bank,
            counter: db.keyspace("counter")?,
            forks: db.keyspace("forks")?,
            ballast: db.keyspace("ballast")?,
            guests: Guests::default(),
        })
    }
}
