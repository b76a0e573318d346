package lab

// Work on many keyspaces: crates/esker-bench/src/suites/works/keyspaces.rs in Go.

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"esker.invalid/bench/generate"
)

const (
	keyspacesBatch    = 1000
	keyspacesInCommit = 5
	prefixesNote      = "keyspaces are prefixes of 4 bytes in one order"
)

// keyspaceItem is an item to write.
type keyspaceItem struct {
	keyspace   uint32
	key, value []byte
}

func writeItems(items ...keyspaceItem) func(KeyspaceWriter) error {
	return func(w KeyspaceWriter) error {
		for _, item := range items {
			if err := w.Put(item.keyspace, item.key, item.value); err != nil {
				return err
			}
		}
		return nil
	}
}

func (x *executor) onKeyspaces(w work) (end done, err error) {
	switch w.Do {
	case "create_keyspaces":
		end.WrittenBytes, end.LiveBytes = x.items.itemBytes(), x.items.itemBytes()
		put := writeItems(x.newest(0))
		end.Seconds, err = timed(func() error { return x.keyspaces.Write(put) })
	case "load_keyspaces":
		end, err = x.loadKeyspaces(w.Count)
	case "commit_to_keyspaces":
		end, err = x.commitToKeyspaces(w.Budget)
	case "read_keyspaces":
		end, err = x.readKeyspaces(w.Budget)
	case "open_keyspaces":
		expected, got := x.newest(x.content.to/2), uint64(0)
		end.Seconds, err = timed(func() error {
			_, err := x.keyspaces.Get(expected.keyspace, expected.key, func(value []byte) { got = generate.Probe(value) })
			return err
		})
		end.LiveBytes = x.liveBytes()
		err = cmp.Or(err, expect("the value that the first get returned", got, generate.Probe(expected.value)))
	case "drop_keyspaces":
		end, err = x.dropKeyspaces()
	case "check":
		return done{}, x.checkKeyspaces()
	default:
		return done{}, fmt.Errorf("not the work of keyspaces: %s", w.Do)
	}
	if _, arePrefixes := x.keyspaces.(*prefixed); arePrefixes {
		end.Note = prefixesNote
	}
	return end, err
}

// timed returns the seconds of work that has no clock of its own.
func timed(work func() error) (float64, error) {
	start := time.Now()
	err := work()
	return time.Since(start).Seconds(), err
}

func (x *executor) keyspace(i uint64) uint32 {
	return generate.NewKeyspaceItems(x.items.Seed, uint32(x.items.Number)).Keyspace(i)
}

func (x *executor) newest(i uint64) keyspaceItem {
	var value []byte
	return keyspaceItem{x.keyspace(i), x.items.key(i, nil), x.items.value(i, x.content.version(i), &value)}
}

func (x *executor) loadKeyspaces(count uint64) (done, error) {
	calls := newCalls([]string{"transaction"}, budget{1<<63 - 1, count}, x.dir)
	defer calls.track.abandon()
	x.content.to = count
	x.content.keepVersions()
	for first := uint64(0); first < count; first += keyspacesBatch {
		var items []keyspaceItem
		for i := first; i < min(first+keyspacesBatch, count); i++ {
			items = append(items, x.newest(i))
		}
		put := writeItems(items...)
		if err := calls.callFor(0, uint64(len(items)), func() error { return x.keyspaces.Write(put) }); err != nil {
			return done{}, err
		}
	}
	return calls.finish((count+keyspacesBatch-1)/keyspacesBatch, x.liveBytes(), x.liveBytes()), nil
}

// drawKeyspaces draws items, each in a different keyspace.
func (x *executor) drawKeyspaces() []uint64 {
	var drawn []uint64
	for len(drawn) < keyspacesInCommit {
		i := x.rng.Below(x.content.to)
		keyspace := x.keyspace(i)
		if !slices.ContainsFunc(drawn, func(other uint64) bool { return x.keyspace(other) == keyspace }) {
			drawn = append(drawn, i)
		}
	}
	return drawn
}

func (x *executor) commitToKeyspaces(budget budget) (done, error) {
	calls, commits := newCalls([]string{"transaction"}, budget, x.dir), uint64(0)
	defer calls.track.abandon()
	for calls.areLeft() {
		var items []keyspaceItem
		for _, i := range x.drawKeyspaces() {
			x.content.versions[i]++
			items = append(items, x.newest(i))
		}
		put := writeItems(items...)
		if err := calls.call(0, func() error { return x.keyspaces.Write(put) }); err != nil {
			return done{}, err
		}
		commits++
	}
	return calls.finish(commits, commits*keyspacesInCommit*x.items.itemBytes(), x.liveBytes()), nil
}

func (x *executor) readKeyspaces(budget budget) (done, error) {
	calls := newCalls([]string{"read"}, budget, x.dir)
	defer calls.track.abandon()
	for calls.areLeft() {
		expected, got := x.newest(x.rng.Below(x.content.to)), uint64(0)
		visit := func(value []byte) { got = generate.Probe(value) }
		err := calls.call(0, func() error {
			_, err := x.keyspaces.Get(expected.keyspace, expected.key, visit)
			return err
		})
		if err := cmp.Or(err, expect("the value that a get returned", got, generate.Probe(expected.value))); err != nil {
			return done{}, err
		}
	}
	return calls.finish(0, 0, x.liveBytes()), nil
}

// dropKeyspaces removes the first half of the keyspaces.
func (x *executor) dropKeyspaces() (end done, err error) {
	dropped := uint32(x.items.Number / 2)
	end.Seconds, err = timed(func() error { return x.keyspaces.RemoveKeyspaces(0, dropped) })
	for i := range x.content.to {
		if x.keyspace(i) < dropped {
			x.content.set(i, false)
		}
	}
	end.Ops, end.LiveBytes = uint64(dropped), x.liveBytes()
	return end, err
}

// checkKeyspaces compares every byte of each keyspace with the expected content.
func (x *executor) checkKeyspaces() error {
	type held struct{ items, sum uint64 }
	expected := make([]held, x.items.Number)
	x.content.each(^uint64(0), func(i uint64) {
		item := x.newest(i)
		expected[item.keyspace].items++
		expected[item.keyspace].sum += generate.Checksum(item.key, item.value)
	})
	for keyspace, held := range expected {
		err := checkScan(held.items, held.sum, func(visit func(key, value []byte)) (uint64, error) {
			return x.keyspaces.Range(uint32(keyspace), nil, held.items+1, visit)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
