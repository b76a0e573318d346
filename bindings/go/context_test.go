package esker_test

import (
	"context"
	"testing"

	"esker.dev/esker"
)

func TestContexts(t *testing.T) {
	db := open(t)
	ks := value(db.Keyspace("a"))(t)
	must(t, db.Batch(func(tx *esker.Tx) error {
		in := value(tx.In(ks))(t)
		for n := range 5000 {
			must(t, in.Put([]byte{byte(n >> 8), byte(n)}, make([]byte, 200)))
		}
		return nil
	}))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	never := func(*esker.Tx) error {
		t.Error("the function ran")
		return nil
	}
	wants(t, db.ViewContext(ended, never), context.Canceled)
	wants(t, db.UpdateContext(ended, never), context.Canceled)

	// Nothing is written, also if the function has not noticed.
	ctx, cancel := context.WithCancel(t.Context())
	wants(t, db.UpdateContext(ctx, func(tx *esker.Tx) error {
		cancel()
		return value(tx.In(ks))(t).Put(b("new"), nil)
	}), context.Canceled)
	wants(t, ks.Delete(b("other")), nil)
	equal(t, value(ks.Contains(b("new")))(t), false)

	// It does not run again after a conflict.
	ctx, cancel = context.WithCancel(t.Context())
	runs := 0
	wants(t, db.UpdateContext(ctx, func(tx *esker.Tx) error {
		in := value(tx.In(ks))(t)
		value(in.Contains(b("n")))(t)
		must(t, ks.Put(b("n"), nil))
		must(t, in.Put(b("new"), nil))
		if runs++; runs == 3 {
			cancel()
			return esker.ErrConflict
		}
		return nil
	}), context.Canceled)
	equal(t, runs, 3)

	// Ranges and cursors end.
	ctx, cancel = context.WithCancel(t.Context())
	wants(t, db.ViewContext(ctx, func(tx *esker.Tx) error {
		in := value(tx.In(ks))(t)
		cursor, read := in.Cursor(), 0
		cursor.First()
		for range in.All() {
			if read++; read == 1 {
				cancel()
			}
		}
		if read == 0 || read >= 5000 {
			t.Errorf("the range had %d entries", read)
		}
		key, _ := cursor.Next()
		equal(t, key == nil, true)
		wants(t, cursor.Err(), context.Canceled)
		return nil
	}), context.Canceled)
	must(t, db.UpdateContext(t.Context(), func(tx *esker.Tx) error { return value(tx.In(ks))(t).Put(b("new"), nil) }))
}
