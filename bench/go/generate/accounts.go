package generate

// The accounts of suite transactions: accounts.rs in crates/esker-bench-api says what they are made of.

import (
	"bytes"
	"encoding/binary"
	"slices"
)

const (
	AccountValueBytes = 100
	AccountBalance    = 1000
	accountHeadBytes  = 24
)

// Accounts are those of a seed.
type Accounts struct{ Seed uint64 }

// Account is the content of an account.
type Account struct {
	Balance int64
	Changes uint64
}

// Key returns the key of account i.
func (a Accounts) Key(i uint64) ObigKey { return ObigRandom(a.Seed, i) }

// Number returns the number of the account with this key. The key must belong to an account.
func (a Accounts) Number(key []byte) uint64 {
	if len(key) < 8 {
		return 0
	}
	return Unmix64(binary.BigEndian.Uint64(key)) - a.Seed
}

// Value fills value with the whole value of account i.
func (a Accounts) Value(i uint64, account Account, value *[AccountValueBytes]byte) []byte {
	Fill(Word(a.Seed, i), value[accountHeadBytes:])
	return a.Change(i, account, value)
}

// Change writes a new balance and number of changes into a whole value of account i.
func (a Accounts) Change(i uint64, account Account, value *[AccountValueBytes]byte) []byte {
	binary.LittleEndian.PutUint64(value[:], uint64(account.Balance))
	binary.LittleEndian.PutUint64(value[8:], account.Changes)
	binary.LittleEndian.PutUint64(value[16:], a.check(i, account))
	return value[:]
}

// Read returns the content of account i from its value, or false if the value is torn or of another account.
func (a Accounts) Read(i uint64, value []byte) (Account, bool) {
	if len(value) != AccountValueBytes {
		return Account{}, false
	}
	account := Account{int64(binary.LittleEndian.Uint64(value)), binary.LittleEndian.Uint64(value[8:])}
	const last = AccountValueBytes - accountHeadBytes
	var tail [8]byte
	binary.LittleEndian.PutUint64(tail[:], Word(Word(a.Seed, i), last/8))
	isWhole := bytes.HasSuffix(value, tail[:last%8])
	return account, isWhole && binary.LittleEndian.Uint64(value[16:]) == a.check(i, account)
}

func (a Accounts) check(i uint64, account Account) uint64 {
	return Mix64(Mix64(uint64(account.Balance)^Word(a.Seed, i)) ^ account.Changes)
}

// Transfers draws the transfers of one writer: several different accounts in the order of their keys, and an
// amount.
type Transfers struct {
	accounts Accounts
	rng      *Rng
	below    uint64
}

func NewTransfers(accounts Accounts, writer, below uint64) *Transfers {
	return &Transfers{accounts, NewRng(Word(accounts.Seed, writer)), below}
}

// Draw fills drawn with the accounts of the next transfer. It returns the amount that each but the first
// receives.
func (t *Transfers) Draw(drawn []uint64) int64 {
	for n := range drawn {
		drawn[n] = t.rng.Below(t.below)
		for slices.Contains(drawn[:n], drawn[n]) {
			drawn[n] = t.rng.Below(t.below)
		}
	}
	slices.SortFunc(drawn, func(a, b uint64) int {
		first, second := t.accounts.Key(a), t.accounts.Key(b)
		return bytes.Compare(first[:], second[:])
	})
	return int64(t.rng.Below(10)) + 1
}
