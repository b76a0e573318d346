package generate

// Checksums of every stream. generate_test.go pins them; the Rust generators have the same.

import (
	"encoding/binary"
	"math/bits"
)

// Stream is a generator by its name, with the checksum of what it makes.
type Stream struct {
	Name string `json:"name"`
	Sum  uint64 `json:"sum"`
}

// Streams are those of seed 3. Values of the obigstore streams have pairBytes bytes.
func Streams(pairBytes int) []Stream {
	var key [24]byte
	sum := func(n int, pair func(i uint64) uint64) uint64 {
		sum := uint64(0)
		for i := range n {
			sum = bits.RotateLeft64(sum, 1) ^ pair(uint64(i))
		}
		return sum
	}
	redb := Items{Seed: 3}
	var redbValue [ItemValueBytes]byte
	ints := Ints{Seed: 3}
	var intKey [4]byte
	var intValue [8]byte
	pool := NewPool(3)
	badger := NewBadgerItems(3, 128)
	draws := badger.Draws()
	var badgerKey [BadgerKeyBytes]byte
	ycsb := YcsbRecords{Seed: 3}
	var ycsbValue [YcsbValueBytes]byte
	storage := func(sequential bool) func(i uint64) uint64 {
		items, value := StorageItems{Seed: 3, Sequential: sequential}, make([]byte, 512)
		var key [StorageKeyBytes]byte
		return func(i uint64) uint64 { return Checksum(items.Key(i, &key), items.Value(i, i%3, value)) }
	}
	keyspaces := NewKeyspaceItems(3, 1000)
	keyspaceItem := func(i uint64) uint64 {
		var key [StorageKeyBytes]byte
		full := binary.BigEndian.AppendUint32(nil, keyspaces.Keyspace(i))
		return Checksum(append(full, keyspaces.Key(i, &key)...), keyspaces.Value(i, i%3, make([]byte, 128)))
	}
	hotspots := NewHotspots(3, 0.99, 4)
	obig := func(key ObigKey) uint64 {
		return Checksum(key[:], ObigValue(&key, make([]byte, pairBytes)))
	}
	accounts := Accounts{Seed: 3}
	accountOf := func(i uint64) uint64 {
		var value [AccountValueBytes]byte
		key := accounts.Key(i)
		return Checksum(key[:], accounts.Value(i, Account{Balance: 7 - int64(i), Changes: i}, &value))
	}
	transfers := NewTransfers(accounts, 2, 100)
	transfer := func(uint64) uint64 {
		var drawn [4]uint64
		sum := uint64(transfers.Draw(drawn[:]))
		for _, i := range drawn {
			sum = bits.RotateLeft64(sum, 7) ^ i
		}
		return sum
	}
	entries := Entries{Seed: 3, HoldMs: 1000, SpreadMs: 500}
	entryOf := func(i uint64) uint64 {
		var value [EntryValueBytes]byte
		key := entries.Key(i)
		sum := Checksum(key[:], entries.Value(i, &value))
		if ms, expires := entries.ExpiresMs(i); expires {
			sum ^= ms
		}
		return sum
	}
	shapeItem := func(n uint64) uint64 {
		shape, i := Shapes[n/100], n%100
		return Checksum(shape.Key(3, i, nil), shape.Value(3, i, make([]byte, shape.ValueBytes)))
	}
	zipf, ranks := NewZipf(0.99), NewRng(1)
	zipfian, scattered := zipf.Zipfian(1250), NewRng(1)
	order := NewOrder(351_000, 7).SkipTo(1000)
	return []Stream{
		{"redb", sum(1000, func(i uint64) uint64 {
			return Checksum(redb.Key(i, &key), redb.Value(i, &redbValue))
		})},
		{"int", sum(1000, func(i uint64) uint64 {
			return Checksum(ints.Key(uint32(i), &intKey), ints.Value(uint32(i), &intValue))
		})},
		{"large", sum(3, func(i uint64) uint64 { return Checksum(nil, pool.Value(i, 2_000_000)) })},
		{"badger", sum(1000, func(uint64) uint64 {
			k := draws.Below(1000)
			return Checksum(badger.Key(k, &badgerKey), badger.Value(k))
		})},
		{"ycsb", sum(1000, func(i uint64) uint64 {
			return Checksum(ycsb.Key(i, &key), ycsb.Value(i, i%3, &ycsbValue))
		})},
		{"storage-bench random", sum(1000, storage(false))},
		{"storage-bench sequential", sum(1000, storage(true))},
		{"keyspaces", sum(1000, keyspaceItem)},
		{"obigstore sequential", sum(1000, func(i uint64) uint64 { return obig(ObigSequential(i)) })},
		{"obigstore random", sum(1000, func(i uint64) uint64 { return obig(ObigRandom(3, i)) })},
		{"obigstore hotspots", sum(1000, func(uint64) uint64 {
			key, _ := hotspots.NextKey()
			return obig(key)
		})},
		{"accounts", sum(1000, accountOf)},
		{"transfers", sum(1000, transfer)},
		{"shapes", sum(100*len(Shapes), shapeItem)},
		{"entries", sum(1000, entryOf)},
		{"zipfian", sum(100, func(i uint64) uint64 { return zipfian(scattered, 1000+i) })},
		{"zipf", sum(1000, func(uint64) uint64 { return zipf.Rank(ranks, 1_000_000) })},
		{"order", sum(1000, func(uint64) uint64 { return order.Take() })},
		{"probe", sum(20, func(i uint64) uint64 { return Probe(redbValue[:i]) })},
		{"probe of large values", sum(100, func(i uint64) uint64 { return Probe(pool.Value(i, int(1000+i))) })},
	}
}
