package lab

// Suite int; crates/esker-bench/src/suites/int.rs says where it is from.

import (
	"errors"

	"esker.invalid/bench/generate"
)

const (
	intSeed       = 5
	intCacheBytes = 4 << 30
	intItemBytes  = 12
)

type intSuite struct{}

func (intSuite) Name() string { return "int" }

func intItems(scale string) uint64 {
	if scale == "test" {
		return 2_000
	}
	return 1_000_000
}

func (intSuite) Rows(scale string) []Row {
	return []Row{seconds("bulk load", intItems(scale)).withCommits(1)}
}

func (intSuite) Run(engine Engine, scale string, _ int, r *Recorder) error {
	ints, count := generate.Ints{Seed: intSeed}, intItems(scale)
	store, err := engine.Open(r.dir, OpenOptions{CacheBytes: intCacheBytes, ValueBytes: 8})
	if err != nil {
		return err
	}
	var key [4]byte
	var value [8]byte
	err = r.row("bulk load", func() (outcome, error) {
		bytes := count * intItemBytes
		return outcome{userWrittenBytes: bytes, liveBytes: bytes},
			inOneTransaction(store, engine.Cannot(LargeTransactions), count, func(w Writer, from, to uint64) error {
				for i := from; i < to; i++ {
					if err := w.Put(ints.Key(uint32(i), &key), ints.Value(uint32(i), &value)); err != nil {
						return err
					}
				}
				return nil
			})
	})
	if err != nil {
		return err
	}
	if err := r.drain(store); err != nil {
		return err
	}
	expected := uint64(0)
	for i := range count {
		expected += generate.Checksum(ints.Key(uint32(i), &key), ints.Value(uint32(i), &value))
	}
	err = withReader(store, func(reader Reader) error { return r.check(fullScan(reader, count, expected)) })
	return errors.Join(err, store.Close())
}
