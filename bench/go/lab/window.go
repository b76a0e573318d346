package lab

// A moving window of live items: crates/esker-bench/src/suites/works/window.rs in Go.

import (
	"cmp"
	"slices"

	"esker.invalid/bench/generate"
)

func (x *executor) probe(i uint64, buffer *[]byte) uint64 {
	return generate.Probe(x.items.value(i, 0, buffer))
}

// moved ends a window in which each step added and removed one item.
func (x *executor) moved(calls *calls, from, commitsPerStep uint64) done {
	steps := x.content.from - from
	return calls.finish(commitsPerStep*steps, steps*(x.items.itemBytes()+uint64(x.items.keyBytes())), x.liveBytes())
}

func (x *executor) queue(budget budget) (done, error) {
	const push, pop = 0, 1
	calls := newCalls([]string{"push", "pop"}, budget, x.dir)
	defer calls.track.abandon()
	var buffer []byte
	first := x.content.from
	for calls.areLeft() {
		key, value := x.items.key(x.content.to, nil), x.items.value(x.content.to, 0, &buffer)
		put := func(writer Writer) error { return writer.Put(key, value) }
		if err := calls.call(push, func() error { return x.store.Write(put) }); err != nil {
			return done{}, err
		}
		x.content.to++
		head, got := make([]byte, 0, x.items.keyBytes()), uint64(0)
		show := func(key, value []byte) {
			head = append(head[:0], key...)
			got = generate.Probe(value)
		}
		remove := func(writer Writer) error { return writer.Remove(head) }
		err := calls.call(pop, func() error {
			_, err := x.store.Range(nil, 1, show)
			return cmp.Or(err, x.store.Write(remove))
		})
		switch {
		case err != nil:
			return done{}, err
		case !slices.Equal(head, x.items.key(x.content.from, nil)):
			return done{}, wrong{"what was popped was not the head"}
		}
		if err := expect("the value that was popped", got, x.probe(x.content.from, &buffer)); err != nil {
			return done{}, err
		}
		x.content.from++
	}
	return x.moved(calls, first, 2), nil
}

func (x *executor) replace(budget budget) (done, error) {
	const replace, read, readExpired = 0, 1, 2
	calls := newCalls([]string{"replace", "read", "read of an expired item"}, budget, x.dir)
	defer calls.track.abandon()
	var buffer []byte
	first, live := x.content.from, x.content.len()
	for calls.areLeft() {
		fresh, old := x.items.key(x.content.to, nil), x.items.key(x.content.from, nil)
		value := x.items.value(x.content.to, 0, &buffer)
		work := func(writer Writer) error { return cmp.Or(writer.Put(fresh, value), writer.Remove(old)) }
		if err := calls.call(replace, func() error { return x.store.Write(work) }); err != nil {
			return done{}, err
		}
		x.content.from++
		x.content.to++
		alive, got := x.content.from+x.rng.Below(live), uint64(0)
		key := x.items.key(alive, nil)
		visit := func(value []byte) { got = generate.Probe(value) }
		err := calls.call(read, func() error {
			_, err := x.store.Get(key, visit)
			return err
		})
		if err := cmp.Or(err, expect("the value of a live item", got, x.probe(alive, &buffer))); err != nil {
			return done{}, err
		}
		key = x.items.key(x.rng.Below(x.content.from), nil)
		isThere, look := false, func([]byte) {}
		err = calls.call(readExpired, func() (err error) {
			isThere, err = x.store.Get(key, look)
			return err
		})
		switch {
		case err != nil:
			return done{}, err
		case isThere:
			return done{}, wrong{"an expired item is there"}
		}
	}
	return x.moved(calls, first, 1), nil
}
