package lab

import (
	"bytes"
	"errors"
	"testing"
	"time"
)

func TestARowSaysThatBackgroundWorkWentOn(t *testing.T) {
	out := &bytes.Buffer{}
	rows := []Row{seconds("load", 1), seconds("reads", 1)}
	// Three windows of rest do not fit.
	r := &Recorder{rows: rows, dir: t.TempDir(), out: out, idleWindow: 40 * time.Millisecond, idleWaitMax: 60 * time.Millisecond}
	store := &memoryStore{}
	err := errors.Join(
		r.drain(store),
		r.row("load", func() (outcome, error) { return outcome{}, nil }),
		r.settle(store),
		r.row("reads", func() (outcome, error) { return outcome{note: "warm"}, nil }),
		r.drain(store),
		r.finish(),
	)
	if err != nil {
		t.Fatal(err)
	}
	const note = "background work went on after 0.06 s"
	for i, rec := range recordsIn(out) {
		if expected := []string{note, note + "; warm; " + note}[i]; rec.Note != expected {
			t.Error(rec.Row, rec.Note)
		}
	}
}
