package lab

import (
	"bytes"
	"errors"
	"slices"
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

// restless waits until it may wait no longer.
type restless struct{ waited *time.Duration }

func (s restless) Drain(deadline time.Time) error {
	*s.waited = time.Until(deadline)
	if *s.waited < time.Minute {
		time.Sleep(*s.waited)
	}
	return nil
}

func TestAnEngineWhoseOwnWaitHasNoEndGetsHalfOfTheStep(t *testing.T) {
	t.Setenv(stepSeconds, "1")
	out, waited := &bytes.Buffer{}, time.Duration(0)
	r := &Recorder{rows: []Row{seconds("load", 1)}, dir: t.TempDir(), out: out, idleWindow: time.Millisecond, idleWaitMax: idleWaitMax()}
	err := errors.Join(
		r.row("load", func() (outcome, error) { return outcome{}, nil }),
		r.drain(restless{&waited}),
		r.finish(),
	)
	if note := recordsIn(out)[0].Note; err != nil || note != "background work went on after 0.5 s" {
		t.Error(err, note)
	}
	if waited > time.Second/2 {
		t.Error(waited)
	}
	for step, expected := range map[string]time.Duration{"": 600 * time.Second, "3600": 600 * time.Second, "150": 75 * time.Second} {
		t.Setenv(stepSeconds, step)
		if got := idleWaitMax(); got != expected {
			t.Error(step, got)
		}
	}
}

func TestAFailedCheckVoidsWhatWasWrittenSinceTheLastOneThatPassed(t *testing.T) {
	var rows []Row
	for _, name := range []string{"load", "mix", "reads", "update", "compact", "reads again", "late"} {
		rows = append(rows, seconds(name, 1))
	}
	out := &bytes.Buffer{}
	r := &Recorder{rows: rows, dir: t.TempDir(), out: out}
	row := func(name string, out outcome) error {
		return r.row(name, func() (outcome, error) { return out, nil })
	}
	bad := wrong{"bad"}
	err := errors.Join(
		row("load", outcome{userWrittenBytes: 1}),
		r.check(nil),
		row("mix", outcome{commits: 7}),
		row("reads", outcome{}),
		r.checkRow(nil), // says nothing of what the mix wrote
		row("update", outcome{userWrittenBytes: 1}),
		row("compact", outcome{rewrites: true}),
		row("reads again", outcome{}),
		r.check(bad),
		row("late", outcome{userWrittenBytes: 1}),
		r.checkRow(bad),
		r.finish(),
	)
	var void []string
	for _, rec := range recordsIn(out) {
		if rec.Error != "" {
			void = append(void, rec.Row)
		}
		if (rec.Error == "") != (rec.Value != nil) {
			t.Error(rec)
		}
	}
	if expected := []string{"mix", "update", "compact", "reads again", "late"}; err != nil || !slices.Equal(void, expected) {
		t.Error(err, void)
	}
}
