// Prints what a test of esker-bench holds against the Rust side. It has no engine in it, so it builds in seconds.
//
//	describe streams      checksums of every generator
//	describe rows SCALE   rows of every suite with their counts
//	describe records      every suite at the smallest scale on a map in memory, as messages: what each row does
package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"os"

	"esker.invalid/bench/generate"
	"esker.invalid/bench/lab"
)

func main() {
	var answer any
	switch args := os.Args[1:]; {
	case len(args) == 1 && args[0] == "streams":
		answer = streams()
	case len(args) == 2 && args[0] == "rows":
		rows := map[string][]lab.Row{}
		for _, suite := range lab.Suites {
			rows[suite.Name()] = suite.Rows(args[1])
		}
		answer = rows
	case len(args) == 1 && args[0] == "records":
		fail(rehearse())
		return
	default:
		fmt.Fprintln(os.Stderr, "usage: describe streams | describe rows SCALE | describe records")
		os.Exit(2)
	}
	fail(json.NewEncoder(os.Stdout).Encode(answer))
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func rehearse() error {
	dir, err := os.MkdirTemp("", "esker-bench-go")
	if err != nil {
		return err
	}
	return errors.Join(lab.Rehearse(lab.Memory{}, dir, os.Stdout), os.RemoveAll(dir))
}

type stream struct {
	Name string `json:"name"`
	Sum  uint64 `json:"sum"`
}

func streams() []stream {
	var key [24]byte
	sum := func(n int, pair func(i uint64) uint64) uint64 {
		sum := uint64(0)
		for i := range n {
			sum = bits.RotateLeft64(sum, 1) ^ pair(uint64(i))
		}
		return sum
	}
	redb := generate.Items{Seed: 3}
	var redbValue [generate.ItemValueBytes]byte
	ints := generate.Ints{Seed: 3}
	var intKey [4]byte
	var intValue [8]byte
	pool := generate.NewPool(3)
	badger := generate.NewBadgerItems(3, 128)
	draws := badger.Draws()
	var badgerKey [generate.BadgerKeyBytes]byte
	ycsb := generate.YcsbRecords{Seed: 3}
	var ycsbValue [generate.YcsbValueBytes]byte
	storage := func(sequential bool) func(i uint64) uint64 {
		items, value := generate.StorageItems{Seed: 3, Sequential: sequential}, make([]byte, 512)
		var key [generate.StorageKeyBytes]byte
		return func(i uint64) uint64 { return generate.Checksum(items.Key(i, &key), items.Value(i, i%3, value)) }
	}
	keyspaces := generate.NewKeyspaceItems(3, 1000)
	keyspaceItem := func(i uint64) uint64 {
		var key [generate.StorageKeyBytes]byte
		full := binary.BigEndian.AppendUint32(nil, keyspaces.Keyspace(i))
		return generate.Checksum(append(full, keyspaces.Key(i, &key)...), keyspaces.Value(i, i%3, make([]byte, 128)))
	}
	hotspots := generate.NewHotspots(3, 0.99, 4)
	obig := func(key generate.ObigKey) uint64 {
		return generate.Checksum(key[:], generate.ObigValue(&key, make([]byte, 33)))
	}
	accounts := generate.Accounts{Seed: 3}
	accountOf := func(i uint64) uint64 {
		var value [generate.AccountValueBytes]byte
		key := accounts.Key(i)
		return generate.Checksum(key[:], accounts.Value(i, generate.Account{Balance: 7 - int64(i), Changes: i}, &value))
	}
	transfers := generate.NewTransfers(accounts, 2, 100)
	transfer := func(uint64) uint64 {
		var drawn [4]uint64
		sum := uint64(transfers.Draw(drawn[:]))
		for _, i := range drawn {
			sum = bits.RotateLeft64(sum, 7) ^ i
		}
		return sum
	}
	shapeItem := func(n uint64) uint64 {
		shape, i := generate.Shapes[n/100], n%100
		return generate.Checksum(shape.Key(3, i, nil), shape.Value(3, i, make([]byte, shape.ValueBytes)))
	}
	zipf, ranks := generate.NewZipf(0.99), generate.NewRng(1)
	zipfian, scattered := zipf.Zipfian(1250), generate.NewRng(1)
	order := generate.NewOrder(351_000, 7).SkipTo(1000)
	return []stream{
		{"redb", sum(1000, func(i uint64) uint64 {
			return generate.Checksum(redb.Key(i, &key), redb.Value(i, &redbValue))
		})},
		{"int", sum(1000, func(i uint64) uint64 {
			return generate.Checksum(ints.Key(uint32(i), &intKey), ints.Value(uint32(i), &intValue))
		})},
		{"large", sum(3, func(i uint64) uint64 { return generate.Checksum(nil, pool.Value(i, 2_000_000)) })},
		{"badger", sum(1000, func(uint64) uint64 {
			k := draws.Below(1000)
			return generate.Checksum(badger.Key(k, &badgerKey), badger.Value(k))
		})},
		{"ycsb", sum(1000, func(i uint64) uint64 {
			return generate.Checksum(ycsb.Key(i, &key), ycsb.Value(i, i%3, &ycsbValue))
		})},
		{"storage-bench random", sum(1000, storage(false))},
		{"storage-bench sequential", sum(1000, storage(true))},
		{"keyspaces", sum(1000, keyspaceItem)},
		{"obigstore sequential", sum(1000, func(i uint64) uint64 { return obig(generate.ObigSequential(i)) })},
		{"obigstore random", sum(1000, func(i uint64) uint64 { return obig(generate.ObigRandom(3, i)) })},
		{"obigstore hotspots", sum(1000, func(uint64) uint64 {
			key, _ := hotspots.NextKey()
			return obig(key)
		})},
		{"accounts", sum(1000, accountOf)},
		{"transfers", sum(1000, transfer)},
		{"shapes", sum(100*len(generate.Shapes), shapeItem)},
		{"zipfian", sum(100, func(i uint64) uint64 { return zipfian(scattered, 1000+i) })},
		{"zipf", sum(1000, func(uint64) uint64 { return zipf.Rank(ranks, 1_000_000) })},
		{"order", sum(1000, func(uint64) uint64 { return order.Take() })},
		{"probe", sum(20, func(i uint64) uint64 { return generate.Probe(redbValue[:i]) })},
		{"probe of large values", sum(100, func(i uint64) uint64 { return generate.Probe(pool.Value(i, int(1000+i))) })},
	}
}
