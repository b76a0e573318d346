package lab

// Suite large; crates/esker-bench/src/suites/large.rs says where it is from.

import (
	"errors"

	"esker.invalid/bench/generate"
)

const (
	largeSmallSeed  = 3
	largeSeed       = 4
	largeValueBytes = 2_000_000
	largeCacheBytes = 4 << 30
)

type largeSuite struct{}

func (largeSuite) Name() string { return "large" }

// largeCounts gives the number of large values and of small items.
func largeCounts(scale string) (large, small uint64) {
	switch scale {
	case "quick":
		return 400, 100_000
	case "test":
		return 3, 1_000
	}
	return 4_000, 1_000_000
}

func (largeSuite) Rows(scale string) []Row {
	large, small := largeCounts(scale)
	return []Row{seconds("bulk load", large+small).withCommits(1)}
}

func (s largeSuite) Run(engine Engine, scale string, _ int, r *Recorder) error {
	for _, feature := range []Feature{SyncCommits, LargeTransactions, LargeValues} {
		if why := engine.Cannot(feature); why != "" {
			return cannotGroup(s, scale, 0, why, r)
		}
	}
	large, small := largeCounts(scale)
	pool := generate.NewPool(largeSeed)
	keys, items := generate.Items{Seed: largeSeed}, generate.Items{Seed: largeSmallSeed}
	store, err := engine.Open(r.dir, OpenOptions{CacheBytes: largeCacheBytes, ValueBytes: largeValueBytes})
	if err != nil {
		return err
	}
	var key [generate.ItemKeyBytes]byte
	var value [generate.ItemValueBytes]byte
	each := func(visit func(key, value []byte) error) error {
		for i := range large {
			if err := visit(keys.Key(i, &key), pool.Value(i, largeValueBytes)); err != nil {
				return err
			}
		}
		for i := range small {
			if err := visit(items.Key(i, &key), items.Value(i, &value)); err != nil {
				return err
			}
		}
		return nil
	}
	err = r.row("bulk load", func() (outcome, error) {
		bytes := large*(generate.ItemKeyBytes+largeValueBytes) + small*(generate.ItemKeyBytes+generate.ItemValueBytes)
		return outcome{userWrittenBytes: bytes, liveBytes: bytes},
			store.Write(func(w Writer) error { return each(w.Put) })
	})
	if err != nil {
		return err
	}
	if err := r.drain(store); err != nil {
		return err
	}
	if r.pending.Error == "" {
		expected := uint64(0)
		_ = each(func(key, value []byte) error { // its one error is that of visit
			expected += generate.Checksum(key, value)
			return nil
		})
		err = withReader(store, func(reader Reader) error { return r.check(fullScan(reader, large+small, expected)) })
	}
	return errors.Join(err, store.Close())
}
