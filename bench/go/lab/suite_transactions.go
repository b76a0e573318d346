package lab

// Suite transactions: writers that read what they write; crates/esker-bench/src/suites/transactions.rs says what each row does.
//
// TS1. The rate is commits over the time on the wall; a commit's latency counts from its first try.
// TS2. Every read is looked at. After each row the sum of all balances is what it was, and the sum of all changes is four for each commit.
// TS3. Fairness is the commits of the writer with the fewest over those of the one with the most.

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"esker.invalid/bench/generate"
)

const (
	transactionsSeed       = 41
	transactionsKeys       = 4
	transactionsHot        = 32
	transactionsItemBytes  = 16 + generate.AccountValueBytes
	transactionsCacheBytes = 512 << 20
	transactionsLoadBatch  = 1000
	transactionsTestOps    = 96 // of all writers of a row together
)

var transactionsWriters = []uint64{1, 4, 16}

// transactionsGroup is what the rows of a group have in common.
type transactionsGroup struct {
	family     string
	kind       TransactionKind
	durability Durability
}

var transactionsGroups = []transactionsGroup{
	{"optimistic", Optimistic, Sync}, {"optimistic", Optimistic, Async}, {"waiting", Locks, Sync}, {"waiting", Locks, Async},
}

func transactionsAccounts(scale string) uint64 {
	switch scale {
	case "test":
		return 60
	case "quick":
		return 100_000
	case "seed":
		return 1_000_000
	}
	return 10_000_000
}

func transactionsBudget(scale string) budget {
	switch scale {
	case "test":
		return budget{time.Hour, transactionsTestOps}
	case "quick":
		return budget{time.Second, math.MaxUint64}
	case "seed":
		return budget{10 * time.Second, math.MaxUint64}
	}
	return budget{60 * time.Second, math.MaxUint64}
}

type transactionsSuite struct{}

func (transactionsSuite) Name() string { return "transactions" }

// transactionsRow is a row, and the number of accounts that it draws from.
type transactionsRow struct {
	name  string
	below uint64
}

func (g transactionsGroup) rows(writers, accounts uint64) []transactionsRow {
	s, mode := "s", "sync"
	if writers == 1 {
		s = ""
	}
	if g.durability != Sync {
		mode = "async"
	}
	name := func(contention string) string {
		return fmt.Sprintf("%s, %s, %d writer%s, %s", g.family, contention, writers, s, mode)
	}
	rows := []transactionsRow{{name("uncontended"), accounts}}
	if writers > 1 {
		rows = append(rows, transactionsRow{name("contended"), transactionsHot})
	}
	return rows
}

func (transactionsSuite) Rows(scale string) (rows []Row) {
	for number, group := range transactionsGroups {
		for _, writers := range transactionsWriters {
			for _, row := range group.rows(writers, transactionsAccounts(scale)) {
				rows = append(rows, rate(row.name, number))
			}
		}
	}
	return rows
}

func (s transactionsSuite) Run(engine Engine, scale string, number int, r *Recorder) error {
	group := transactionsGroups[number]
	if why := engine.Cannot(group.durability.feature()); why != "" {
		return cannotGroup(s, scale, number, why, r)
	}
	native, isNative := engine.(TransactionEngine)
	if !isNative {
		return cannotGroup(s, scale, number, "it has no transactions that read and write, as far as its adapter uses it", r)
	}
	kind, hasKind := group.kind.nearest(native.TransactionKinds())
	if !hasKind {
		return fmt.Errorf("%s has no kind of transactions", engine.Name())
	}
	b := &bank{accounts: generate.Accounts{Seed: transactionsSeed}, count: transactionsAccounts(scale)}
	for _, writers := range transactionsWriters {
		options := OpenOptions{
			CacheBytes: transactionsCacheBytes, ValueBytes: generate.AccountValueBytes, ConcurrentWrites: writers, Durability: group.durability,
		}
		store, err := native.OpenTransactions(r.dir, options, kind)
		if err != nil {
			return err
		}
		if err := errors.Join(b.rows(store, group, kind, writers, scale, r), store.Close()); err != nil {
			return err
		}
	}
	return nil
}

// bank is what the database must hold.
type bank struct {
	accounts generate.Accounts
	count    uint64 // accounts
	changes  uint64 // of all accounts since the load
}

// rows runs the rows with this number of writers. The first call loads the accounts.
func (b *bank) rows(store Transactions, group transactionsGroup, kind TransactionKind, writers uint64, scale string, r *Recorder) error {
	if writers == transactionsWriters[0] {
		load := func(far *howFar) error { return b.load(store, far) }
		if err := r.loading("accounts", b.count, load); err != nil {
			return err
		}
		if err := r.drain(store); err != nil {
			return err
		}
	}
	for _, row := range group.rows(writers, b.count) {
		err := r.row(row.name, func() (outcome, error) {
			out, err := b.transfers(store, writers, row.below, transactionsBudget(scale), r.dir)
			out.note = string(kind)
			return out, err
		})
		if err := errors.Join(err, r.drain(store)); err != nil {
			return err
		}
		if err := r.check(b.check(store)); err != nil {
			return err
		}
	}
	return nil
}

func (b *bank) load(store Transactions, far *howFar) error {
	for first := uint64(0); first < b.count; first += transactionsLoadBatch {
		end := min(first+transactionsLoadBatch, b.count)
		keys := make([][]byte, 0, transactionsLoadBatch)
		for i := first; i < end; i++ {
			key := b.accounts.Key(i)
			keys = append(keys, key[:])
		}
		slices.SortFunc(keys, bytes.Compare)
		_, err := store.Transact(keys, func(t Transaction) error {
			for _, key := range keys {
				var value [generate.AccountValueBytes]byte
				account := generate.Account{Balance: generate.AccountBalance}
				if err := t.Put(key, b.accounts.Value(b.accounts.Number(key), account, &value)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		if err := far.at(end, time.Now()); err != nil {
			return err
		}
	}
	return nil
}

// transfersDone is what one writer did in a row.
type transfersDone struct {
	commits, conflicts, conflictsMost uint64
	err                               error
}

// transfers runs a row: writers make transfers between the first below accounts.
func (b *bank) transfers(store Transactions, writers, below uint64, budget budget, dir string) (outcome, error) {
	budget.ops /= writers
	period := budget.period()
	w := &transferring{store: store, accounts: b.accounts, below: below, budget: budget, track: newTrack([]string{"commit"}, period, dir)}
	defer w.track.abandon()
	done := make([]transfersDone, writers)
	var all sync.WaitGroup
	begin := make(chan struct{})
	for writer := range writers {
		all.Go(func() {
			<-begin
			done[writer] = w.write(writer)
		})
	}
	start := time.Now()
	close(begin)
	all.Wait()
	took := time.Since(start).Seconds()
	commits := uint64(0)
	for _, d := range done {
		if d.err != nil {
			return outcome{}, d.err
		}
		commits += d.commits
	}
	changes := commits * transactionsKeys
	b.changes += changes
	detail := w.track.finish("closed")
	for name, figure := range transfersFigures(done) {
		detail.figure(name, figure)
	}
	return outcome{
		seconds: took, ops: commits, commits: commits, userWrittenBytes: changes * transactionsItemBytes,
		liveBytes: b.count * transactionsItemBytes, detail: detail,
	}, nil
}

// transfersFigures are the figures of a row: conflicts and fairness (TS3).
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

// check is TS2.
func (b *bank) check(store Transactions) error {
	balances, changes, torn := int64(0), uint64(0), uint64(0)
	seen, err := store.Scan(func(key, value []byte) {
		number := b.accounts.Number(key)
		expected := b.accounts.Key(number)
		account, isWhole := b.accounts.Read(number, value)
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
	case seen != b.count:
		return expect("accounts", seen, b.count)
	case torn != 0:
		return expect("accounts that are not whole", torn, 0)
	case balances != int64(b.count)*generate.AccountBalance:
		return wrong{fmt.Sprintf("the sum of all accounts: %d, not %d", balances, b.count*generate.AccountBalance)}
	}
	return expect("changes of all accounts", changes, b.changes)
}

// transferring is what the writers of a row share.
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
	var told []span
	tell := func() {
		for _, s := range told {
			w.track.record(0, s.from, s.to, 1)
		}
		told = told[:0]
		w.tracking.Unlock()
	}
	start := time.Now()
	for now := start; done.commits < w.budget.ops && now.Sub(start) < w.budget.time && !w.stop.Load(); {
		var drawn [transactionsKeys]uint64
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
		told = append(told, span{from, now})
		if w.tracking.TryLock() { // nobody waits for the track
			tell()
		}
	}
	w.tracking.Lock()
	tell()
	return done
}

// transfer is one transaction: it takes money from the first of the accounts drawn and gives amount to each of the others. It returns the number
// of its conflicts.
func transfer(store Transactions, accounts generate.Accounts, drawn [transactionsKeys]uint64, amount int64) (uint64, error) {
	var names [transactionsKeys]generate.ObigKey
	keys := make([][]byte, transactionsKeys)
	for n, i := range drawn {
		names[n] = accounts.Key(i)
		keys[n] = names[n][:]
	}
	return store.Transact(keys, func(t Transaction) error {
		var values [transactionsKeys][generate.AccountValueBytes]byte
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
				account.Balance -= amount * (transactionsKeys - 1)
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
