package generate

import (
	"encoding/binary"
	"encoding/hex"
	"math/bits"
	"testing"
)

// The figures are those of crates/esker-bench-api/src/generate: items.rs, golden.rs, distribution.rs.
func TestStreamsArePinned(t *testing.T) {
	var key [24]byte
	var value [ItemValueBytes]byte
	items := Items{3}
	if got := hex.EncodeToString(items.Key(0, &key)); got != "ed8f01dbe4140b1d89a9817b8a6f46b301dd50d0a6e8eb9c" {
		t.Error("redb, first key:", got)
	}
	redb := uint64(0)
	for i := range uint64(1000) {
		redb += Checksum(items.Key(i, &key), items.Value(i, &value))
	}
	sum := func(n int, pair func(i uint64) uint64) uint64 {
		sum := uint64(0)
		for i := range n {
			sum = bits.RotateLeft64(sum, 1) ^ pair(uint64(i))
		}
		return sum
	}
	ints := Ints{3}
	var intKey [4]byte
	var intValue [8]byte
	pool := NewPool(3)
	badger := NewBadgerItems(3, 128)
	draws := badger.Draws()
	var badgerKey [BadgerKeyBytes]byte
	ycsb := YcsbRecords{3}
	var ycsbValue [YcsbValueBytes]byte
	storage := func(sequential bool) func(i uint64) uint64 {
		items, value := StorageItems{3, sequential}, make([]byte, 512)
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
	obig := func(key ObigKey) uint64 { return Checksum(key[:], ObigValue(&key, make([]byte, 32))) }
	accounts := Accounts{3}
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
	shapeItem := func(n uint64) uint64 {
		shape, i := Shapes[n/100], n%100
		return Checksum(shape.Key(3, i, nil), shape.Value(3, i, make([]byte, shape.ValueBytes)))
	}
	ranks, zipf, zipfSum := NewRng(1), NewZipf(0.99), uint64(0)
	for range 1000 {
		zipfSum = bits.RotateLeft64(zipfSum, 5) ^ zipf.Rank(ranks, 1_000_000)
	}
	scattered, zipfian, zipfianSum := NewRng(1), zipf.Zipfian(1250), uint64(0)
	for n := uint64(1000); n < 1100; n++ {
		zipfianSum = bits.RotateLeft64(zipfianSum, 5) ^ zipfian(scattered, n)
	}
	for _, stream := range []struct {
		name        string
		got, pinned uint64
	}{
		{"redb", redb, 12250996318405563520},
		{"int", sum(1000, func(i uint64) uint64 {
			return Checksum(ints.Key(uint32(i), &intKey), ints.Value(uint32(i), &intValue))
		}), 6462110813504162550},
		{"large", sum(3, func(i uint64) uint64 { return Checksum(nil, pool.Value(i, 2_000_000)) }), 5527708034191719542},
		{"badger", sum(1000, func(uint64) uint64 {
			k := draws.Below(1000)
			return Checksum(badger.Key(k, &badgerKey), badger.Value(k))
		}), 772323790396916442},
		{"ycsb", sum(1000, func(i uint64) uint64 {
			return Checksum(ycsb.Key(i, &key), ycsb.Value(i, i%3, &ycsbValue))
		}), 5033598327530058509},
		{"zipf", zipfSum, 13934463083389307911},
		{"zipfian", zipfianSum, 13053624719225085048},
		{"storage-bench random", sum(1000, storage(false)), 12587634721611838626},
		{"storage-bench sequential", sum(1000, storage(true)), 1904829600286437245},
		{"keyspaces", sum(1000, keyspaceItem), 5737417340166680337},
		{"obigstore sequential", sum(1000, func(i uint64) uint64 { return obig(ObigSequential(i)) }), 15020441381303363645},
		{"obigstore random", sum(1000, func(i uint64) uint64 { return obig(ObigRandom(3, i)) }), 940400077955640208},
		{"obigstore hotspots", sum(1000, func(uint64) uint64 {
			key, _ := hotspots.NextKey()
			return obig(key)
		}), 11701354937994816125},
		{"accounts", sum(1000, accountOf), 8773516394753485532},
		{"transfers", sum(1000, transfer), 12395359812278096674},
		{"shapes", sum(100*len(Shapes), shapeItem), 18332308579107764206},
	} {
		if stream.got != stream.pinned {
			t.Errorf("stream %s: %d, pinned %d", stream.name, stream.got, stream.pinned)
		}
	}
}

func TestAnOrderVisitsEverythingOnce(t *testing.T) {
	for _, n := range []uint64{1, 2, 3, 7, 10, 64, 1000, 351_000} {
		for _, start := range []uint64{0, 1, n - 1} {
			order := NewOrder(n, start)
			visited := make([]bool, n)
			for step := range n {
				if got := NewOrder(n, start).SkipTo(step); step%97 == 0 && got.next != order.next {
					t.Fatalf("n %d: step %d is %d, not %d", n, step, got.next, order.next)
				}
				visited[order.Take()] = true
			}
			for i, seen := range visited {
				if !seen {
					t.Fatalf("n %d start %d: %d was not visited", n, start, i)
				}
			}
		}
	}
}

func TestAYcsbKeyGivesItsNumber(t *testing.T) {
	var key [YcsbKeyBytes]byte
	for i := range uint64(1000) {
		if got, ok := (YcsbRecords{7}).Item(YcsbRecords{7}.Key(i, &key)); !ok || got != i {
			t.Fatalf("record %d: %d, %t", i, got, ok)
		}
	}
	if _, ok := (YcsbRecords{7}).Item([]byte("user-1")); ok {
		t.Error("a key that no record has")
	}
}

func TestAStorageKeyGivesItsNumber(t *testing.T) {
	var key [StorageKeyBytes]byte
	for _, items := range []StorageItems{{7, false}, {7, true}} {
		for i := range uint64(1000) {
			if got, ok := items.Item(items.Key(i, &key)); !ok || got != i {
				t.Fatalf("item %d: %d, %t", i, got, ok)
			}
		}
	}
}
