package main

// Adapters with transactions that read what they write: no update is lost, and an abandoned one has no
// effect.

import (
	"errors"
	"runtime"
	"sync"
	"testing"

	"esker.invalid/bench/generate"
	"esker.invalid/bench/lab"
)

func TestTransactions(t *testing.T) {
	for _, engine := range engines {
		native, isNative := engine.(lab.TransactionEngine)
		if !isNative {
			continue
		}
		for _, kind := range native.TransactionKinds() {
			t.Run(engine.Name()+", "+string(kind), func(t *testing.T) { transactionsAreCorrect(t, native, kind) })
		}
	}
}

func transactionsAreCorrect(t *testing.T, engine lab.TransactionEngine, kind lab.TransactionKind) {
	const counters, writers, rounds = 3, 8, 30
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	options := lab.OpenOptions{CacheBytes: 64 << 20, ValueBytes: generate.AccountValueBytes, Durability: lab.NoSync, ConcurrentWrites: writers}
	store, err := engine.OpenTransactions(dir, options, kind)
	must(err)
	accounts := generate.Accounts{Seed: 3}
	var keys [][]byte
	for i := range uint64(counters) {
		key := accounts.Key(i)
		keys = append(keys, key[:])
	}
	put := func(tx lab.Transaction, i, changes uint64) error {
		var value [generate.AccountValueBytes]byte
		return tx.Put(keys[i], accounts.Value(i, generate.Account{Changes: changes}, &value))
	}
	get := func(tx lab.Transaction, i uint64) (changes uint64, err error) {
		_, err = tx.Get(keys[i], func(value []byte) {
			account, isWhole := accounts.Read(i, value)
			if !isWhole {
				t.Error("an account is torn")
			}
			changes = account.Changes
		})
		return changes, err
	}
	addToAll := func(by uint64) func(tx lab.Transaction) error {
		return func(tx lab.Transaction) error {
			for i := range uint64(counters) {
				changes, err := get(tx, i)
				if err != nil {
					return err
				}
				runtime.Gosched()
				if err := put(tx, i, changes+by); err != nil {
					return err
				}
			}
			return nil
		}
	}
	check := func(expected uint64) {
		t.Helper()
		seen, err := store.Scan(func(key, value []byte) {
			i := accounts.Number(key)
			if account, isWhole := accounts.Read(i, value); !isWhole || account.Changes != expected {
				t.Errorf("counter %d is %d, not %d", i, account.Changes, expected)
			}
		})
		must(err)
		if seen != counters {
			t.Fatal(seen)
		}
	}
	_, err = store.Transact(keys, addToAll(0))
	must(err)
	stop := errors.New("stop")
	_, err = store.Transact(keys, func(tx lab.Transaction) error { return errors.Join(put(tx, 0, 9), stop) })
	if !errors.Is(err, stop) {
		t.Fatal("the error of the work is lost:", err)
	}
	check(0)
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for range rounds {
				if _, err := store.Transact(keys, addToAll(1)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	check(writers * rounds)
	must(store.Close())
	store, err = engine.OpenTransactions(dir, options, kind)
	must(err)
	check(writers * rounds)
	must(store.Close())
}
