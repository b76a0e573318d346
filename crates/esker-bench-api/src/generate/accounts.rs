//! The accounts of suite `transactions`: 16-byte keys, and 100-byte values with a check word. Numbers are
//! little-endian.
//!
//! ```text
//! key of account i    obigstore::random_key(seed, i)
//! value               balance (i64) | changes (u64) | check (u64) | 76 bytes of fill(word(seed, i))
//! check               mix64(mix64(balance ^ word(seed, i)) ^ changes)
//! ```
//!
//! The check word covers the number, the balance and the changes of the account, so a reader detects a torn
//! or misplaced value. A transfer takes money from the first of its accounts, gives it to the others, and
//! adds one to the changes of each. So the sum of all balances stays the same, and the sum of all changes is
//! the number of transfers times the accounts of one.

use super::obigstore::{Key, random_key};
use super::rng::Rng;
use super::{fill, mix64, unmix64, word};

/// Bytes of a value.
pub const VALUE_BYTES: usize = 100;
/// The balance of a new account.
pub const BALANCE: i64 = 1000;
const HEAD_BYTES: usize = 24;

/// The accounts of a seed.
#[derive(Clone, Copy, Debug)]
pub struct Accounts {
    seed: u64,
}

/// The content of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    /// Money; negative if more was taken than there was.
    pub balance: i64,
    /// Number of transfers that have changed it.
    pub changes: u64,
}

impl Account {
    /// A new account.
    pub const NEW: Self = Self { balance: BALANCE, changes: 0 };
}

impl Accounts {
    /// Returns the accounts of `seed`.
    pub fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// Returns the key of account `i`.
    pub fn key(self, i: u64) -> Key {
        random_key(self.seed, i)
    }

    /// Returns the number of the account with this key. If no account has the key, the number means nothing.
    pub fn number(self, key: &[u8]) -> u64 {
        let first = key.first_chunk::<8>().map(|word| u64::from_be_bytes(*word)).unwrap_or_default();
        unmix64(first).wrapping_sub(self.seed)
    }

    /// Fills `bytes` with the whole value of account `i`.
    pub fn value(self, i: u64, account: Account, bytes: &mut [u8; VALUE_BYTES]) {
        fill(word(self.seed, i), &mut bytes[HEAD_BYTES..]);
        self.change(i, account, bytes);
    }

    /// Writes a new balance and number of changes into `bytes`, a whole value of account `i`.
    pub fn change(self, i: u64, account: Account, bytes: &mut [u8; VALUE_BYTES]) {
        bytes[..8].copy_from_slice(&account.balance.to_le_bytes());
        bytes[8..16].copy_from_slice(&account.changes.to_le_bytes());
        bytes[16..HEAD_BYTES].copy_from_slice(&self.check(i, account).to_le_bytes());
    }

    /// Reads account `i` from its value. Returns `None` if the check word does not match, the length is
    /// wrong, or the last four of the 76 fixed bytes differ. It does not compare the other fixed bytes.
    pub fn read(self, i: u64, bytes: &[u8]) -> Option<Account> {
        let bytes: &[u8; VALUE_BYTES] = bytes.try_into().ok()?;
        let number = |at: usize| {
            bytes[at..].first_chunk::<8>().map(|word| u64::from_le_bytes(*word)).unwrap_or_default()
        };
        let account = Account { balance: number(0).cast_signed(), changes: number(8) };
        let last = VALUE_BYTES - HEAD_BYTES;
        let tail = word(word(self.seed, i), last as u64 / 8);
        let is_whole = bytes.ends_with(&tail.to_le_bytes()[..last % 8]);
        (is_whole && number(16) == self.check(i, account)).then_some(account)
    }

    fn check(self, i: u64, account: Account) -> u64 {
        mix64(mix64(account.balance.cast_unsigned() ^ word(self.seed, i)) ^ account.changes)
    }
}

/// The transfers of one writer. Each has several different accounts, in the order of their keys, and an
/// amount.
#[derive(Clone, Debug)]
pub struct Transfers {
    accounts: Accounts,
    rng: Rng,
    below: u64,
}

impl Transfers {
    /// Returns the transfers of writer `writer` between the first `below` accounts.
    pub fn new(accounts: Accounts, writer: u64, below: u64) -> Self {
        Self { accounts, rng: Rng::new(word(accounts.seed, writer)), below }
    }

    /// Fills `drawn` with the accounts of the next transfer, and returns the amount for each of them except
    /// the first, from 1 to 10. `drawn` must be shorter than the number of accounts.
    pub fn draw(&mut self, drawn: &mut [u64]) -> i64 {
        for n in 0..drawn.len() {
            drawn[n] = loop {
                let account = self.rng.below(self.below);
                if !drawn[..n].contains(&account) {
                    break account;
                }
            };
        }
        drawn.sort_unstable_by_key(|account| self.accounts.key(*account));
        self.rng.below(10).cast_signed() + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_tells_what_it_is_and_whose() {
        let accounts = Accounts::new(3);
        let mut bytes = [0; VALUE_BYTES];
        let account = Account { balance: -7, changes: 9 };
        accounts.value(5, Account::NEW, &mut bytes);
        accounts.change(5, account, &mut bytes);
        assert_eq!(accounts.read(5, &bytes), Some(account));
        assert_eq!(accounts.number(&accounts.key(5)), 5);
        assert_eq!(accounts.read(6, &bytes), None);
        assert_eq!(accounts.read(5, &bytes[1..]), None);
        for at in (0..HEAD_BYTES).chain(VALUE_BYTES - 4..VALUE_BYTES) {
            let mut flipped = bytes;
            flipped[at] ^= 1;
            assert_eq!(accounts.read(5, &flipped), None, "byte {at}");
        }
    }

    #[test]
    fn a_transfer_is_of_different_accounts_in_the_order_of_their_keys() {
        let accounts = Accounts::new(3);
        let mut transfers = Transfers::new(accounts, 1, 6);
        for _ in 0..1000 {
            let mut drawn = [0; 4];
            assert!((1..=10).contains(&transfers.draw(&mut drawn)));
            assert!(drawn.map(|i| accounts.key(i)).is_sorted_by(|a, b| a < b));
            assert!(drawn.iter().all(|i| *i < 6));
        }
    }
}
