package lab

// Transfers between accounts by many writers at once: crates/esker-bench/src/suites/works/transfers.rs in Go.

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"esker.invalid/bench/generate"
)

const (
	transferKeys  = 4 // accounts of a transfer
	accountsBatch = 1000
)

func (x *executor) onTransactions(w work, report progress) (done, error) {
	switch w.Do {
	case "load_accounts":
		return done{}, x.loadAccounts(w.Count, report)
	case "transfer":
		return x.transfers(w)
	case "check":
		return done{}, x.checkAccounts()
	}
	return done{}, fmt.Errorf("not the work of transactions: %s", w.Do)
}

func (x *executor) accounts() generate.Accounts { return generate.Accounts{Seed: x.items.Seed} }

func (x *executor) loadAccounts(count uint64, report progress) error {
	accounts := x.accounts()
	for first := uint64(0); first < count; first += accountsBatch {
		end := min(first+accountsBatch, count)
		keys := make([][]byte, 0, accountsBatch)
		for i := first; i < end; i++ {
			key := accounts.Key(i)
			keys = append(keys, key[:])
		}
		slices.SortFunc(keys, bytes.Compare)
		_, err := x.transactions.Transact(keys, func(t Transaction) error {
			for _, key := range keys {
				var value [generate.AccountValueBytes]byte
				account := generate.Account{Balance: generate.AccountBalance}
				if err := t.Put(key, accounts.Value(accounts.Number(key), account, &value)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		report(end)
	}
	x.content.to = count
	return nil
}

// transfersDone is the work of one writer in a row.
type transfersDone struct {
	commits, conflicts, conflictsMost uint64
	err                               error
}

// transfers runs a row: writers make transfers between the first accounts.
func (x *executor) transfers(w work) (end done, err error) {
	budget := w.Budget
	budget.Ops /= w.Writers
	shared := &transferring{
		store: x.transactions, accounts: x.accounts(), below: w.Below, budget: budget,
		track: newTrack([]string{"commit"}, budget.period(), x.dir),
	}
	defer shared.track.abandon()
	all := make([]transfersDone, w.Writers)
	var writers sync.WaitGroup
	begin := make(chan struct{})
	for writer := range w.Writers {
		writers.Go(func() {
			<-begin
			all[writer] = shared.write(writer)
		})
	}
	start := time.Now()
	close(begin)
	writers.Wait()
	end.Seconds = time.Since(start).Seconds()
	for _, d := range all {
		if d.err != nil {
			return end, d.err
		}
		end.Commits += d.commits
	}
	changes := end.Commits * transferKeys
	x.changes += changes
	end.Ops, end.WrittenBytes, end.LiveBytes = end.Commits, changes*x.items.itemBytes(), x.liveBytes()
	end.Detail, end.Figures = shared.track.finish("closed"), transfersFigures(all)
	return end, nil
}

// transfersFigures returns the figures of a row: conflicts, and the fewest commits of a writer over the most.
func transfersFigures(done []transfersDone) map[string]float64 {
	sum, conflicts, conflictsMost, least, most := uint64(0), uint64(0), uint64(0), uint64(math.MaxUint64), uint64(0)
	for _, d := range done {
		sum, conflicts = sum+d.commits, conflicts+d.conflicts
		conflictsMost, least, most = max(conflictsMost, d.conflictsMost), min(least, d.commits), max(most, d.commits)
	}
	return map[string]float64{
		"conflicts": float64(conflicts), "conflicts per commit": float64(conflicts) / float64(max(sum, 1)),
		"most conflicts of one commit": float64(conflictsMost), "fairness": float64(least) / float64(max(most, 1)),
	}
}

// checkAccounts fails if a transaction, or a part of one, is missing or there twice.
func (x *executor) checkAccounts() error {
	accounts, count := x.accounts(), x.content.to
	balances, changes, torn := int64(0), uint64(0), uint64(0)
	seen, err := x.transactions.Scan(func(key, value []byte) {
		number := accounts.Number(key)
		expected := accounts.Key(number)
		account, isWhole := accounts.Read(number, value)
		if !isWhole || !bytes.Equal(key, expected[:]) {
			torn++
			return
		}
		balances += account.Balance
		changes += account.Changes
	})
	switch {
	case err != nil:
		return err
	case seen != count:
		return expect("accounts", seen, count)
	case torn != 0:
		return expect("accounts that are not whole", torn, 0)
	case balances != int64(count)*generate.AccountBalance:
		return wrong{fmt.Sprintf("the sum of all accounts: %d, not %d", balances, count*generate.AccountBalance)}
	}
	return expect("changes of all accounts", changes, x.changes)
}

// transferring is the state that the writers of a row share.
type transferring struct {
	store    Transactions
	accounts generate.Accounts
	below    uint64
	budget   budget
	stop     atomic.Bool // once one has failed
	tracking sync.Mutex
	track    *track
}

type span struct{ from, to time.Time }

func (w *transferring) write(writer uint64) (done transfersDone) {
	transfers := generate.NewTransfers(w.accounts, writer, w.below)
	var untracked []span
	report := func() {
		for _, s := range untracked {
			w.track.record(0, s.from, s.to, 1)
		}
		untracked = untracked[:0]
		w.tracking.Unlock()
	}
	start := time.Now()
	for now := start; done.commits < w.budget.Ops && now.Sub(start) < w.budget.Time && !w.stop.Load(); {
		var drawn [transferKeys]uint64
		amount := transfers.Draw(drawn[:])
		from := time.Now()
		conflicts, err := transfer(w.store, w.accounts, drawn, amount)
		if err != nil {
			w.stop.Store(true)
			done.err = err
			return done
		}
		now = time.Now()
		done.commits++
		done.conflicts += conflicts
		done.conflictsMost = max(done.conflictsMost, conflicts)
		untracked = append(untracked, span{from, now})
		if w.tracking.TryLock() { // no writer waits for the track
			report()
		}
	}
	w.tracking.Lock()
	report()
	return done
}

// transfer makes one transaction: it takes money from the first account drawn and gives amount to each of the
// others. It returns the number of conflicts.
func transfer(store Transactions, accounts generate.Accounts, drawn [transferKeys]uint64, amount int64) (uint64, error) {
	var names [transferKeys]generate.ObigKey
	keys := make([][]byte, transferKeys)
	for n, i := range drawn {
		names[n] = accounts.Key(i)
		keys[n] = names[n][:]
	}
	return store.Transact(keys, func(t Transaction) error {
		var values [transferKeys][generate.AccountValueBytes]byte
		for n, i := range drawn {
			var account generate.Account
			isWhole := false
			_, err := t.Get(keys[n], func(value []byte) {
				if account, isWhole = accounts.Read(i, value); isWhole {
					copy(values[n][:], value)
				}
			})
			if err != nil {
				return err
			}
			if !isWhole {
				return wrong{"an account that was read is not whole"}
			}
			account.Changes++
			if n == 0 {
				account.Balance -= amount * (transferKeys - 1)
			} else {
				account.Balance += amount
			}
			accounts.Change(i, account, &values[n])
		}
		for n := range keys {
			if err := t.Put(keys[n], values[n][:]); err != nil {
				return err
			}
		}
		return nil
	})
}
