package generate

import (
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
	ranks, zipf, zipfSum := NewRng(1), NewZipf(0.99), uint64(0)
	for range 1000 {
		zipfSum = bits.RotateLeft64(zipfSum, 5) ^ zipf.Rank(ranks, 1_000_000)
	}
	scattered, zipfian, zipfianSum := NewRng(1), zipf.Zipfian(1250), uint64(0)
	for n := uint64(1000); n < 1100; n++ {
		zipfianSum = bits.RotateLeft64(zipfianSum, 5) ^ zipfian(scattered, n)
	}
	got := map[string]uint64{}
	for _, stream := range Streams(32) {
		got[stream.Name] = stream.Sum
	}
	got["redb"], got["zipf"], got["zipfian"] = redb, zipfSum, zipfianSum
	for name, pinned := range map[string]uint64{
		"redb":                     12250996318405563520,
		"int":                      6462110813504162550,
		"large":                    5527708034191719542,
		"badger":                   772323790396916442,
		"ycsb":                     5033598327530058509,
		"zipf":                     13934463083389307911,
		"zipfian":                  13053624719225085048,
		"storage-bench random":     12587634721611838626,
		"storage-bench sequential": 1904829600286437245,
		"keyspaces":                5737417340166680337,
		"obigstore sequential":     15020441381303363645,
		"obigstore random":         940400077955640208,
		"obigstore hotspots":       11701354937994816125,
		"accounts":                 8773516394753485532,
		"transfers":                12395359812278096674,
		"shapes":                   18332308579107764206,
		"entries":                  3321863922110725814,
	} {
		if got[name] != pinned {
			t.Errorf("stream %s: %d, pinned %d", name, got[name], pinned)
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
