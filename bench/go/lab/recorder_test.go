package lab

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
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

func TestAnEngineWhoseOwnWaitHasNoEndGetsAQuarterOfTheStep(t *testing.T) {
	t.Setenv(stepSeconds, "1")
	out, waited := &bytes.Buffer{}, time.Duration(0)
	r := &Recorder{rows: []Row{seconds("load", 1)}, dir: t.TempDir(), out: out, idleWindow: time.Millisecond, idleWaitMax: idleWaitMax()}
	err := errors.Join(
		r.row("load", func() (outcome, error) { return outcome{}, nil }),
		r.drain(restless{&waited}),
		r.finish(),
	)
	if note := recordsIn(out)[0].Note; err != nil || note != "background work went on after 0.25 s" {
		t.Error(err, note)
	}
	if waited > time.Second/4 {
		t.Error(waited)
	}
	for step, expected := range map[string]time.Duration{"": 600 * time.Second, "3600": 600 * time.Second, "160": 40 * time.Second} {
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

func TestAnEngineThatCannotReadWhatItWroteHasNoRowsOfIt(t *testing.T) {
	out := &bytes.Buffer{}
	r := &Recorder{rows: []Row{seconds("load", 1), seconds("mix", 1)}, dir: t.TempDir(), out: out}
	damaged := errors.New("a damaged page")
	err := errors.Join(
		r.row("load", func() (outcome, error) { return outcome{userWrittenBytes: 1}, nil }),
		r.row("mix", func() (outcome, error) { return outcome{}, nil }),
		r.check(damaged),
	)
	told := recordsIn(out)
	if len(told) != 1 || told[0].Error != "a damaged page" || told[0].Value != nil || err.Error() != "a damaged page" {
		t.Error(err, told)
	}
}

func TestWhatALoadTakesStandsWithTheFirstRowBehindIt(t *testing.T) {
	out := &bytes.Buffer{}
	r := &Recorder{rows: []Row{seconds("reads", 1), seconds("scans", 1)}, dir: t.TempDir(), out: out, idleWaitMax: 40 * time.Millisecond}
	const wait = 20 * time.Millisecond
	waited := time.Duration(0)
	err := errors.Join(
		r.loading("items", 7, func(far *howFar) error {
			time.Sleep(wait)
			return far.at(7, time.Now())
		}),
		r.drain(restless{&waited}),
		r.drain(&memoryStore{}), // that of an opening is no part of the load
		r.row("reads", func() (outcome, error) { return outcome{detail: &detail{}}.on(7), nil }),
		r.row("scans", func() (outcome, error) { return outcome{}, nil }),
		r.finish(),
	)
	if err != nil || !strings.HasPrefix(out.String(), "{\"progress\":\"7 of 7 items written\"}\n") {
		t.Fatal(err, out)
	}
	records := recordsIn(out)
	figures := records[0].Detail.Figures
	_, hasBytes := figures["load written bytes"]
	if figures["load s"] < 0.02 || figures["load drain s"] < 0.02 || !hasBytes || figures["items when it began"] != 7 {
		t.Error(figures)
	}
	if records[1].Detail != nil {
		t.Error(records[1].Detail)
	}
}

func TestHowFarTellsNowAndThenAndAtTheEnd(t *testing.T) {
	out := &bytes.Buffer{}
	far := (&Recorder{out: out}).howFar("items", 100)
	start := far.told
	for i, after := range []time.Duration{0, 1500, 1600, 3000, 3001} {
		done := []uint64{10, 20, 30, 40, 100}[i]
		if err := far.at(done, start.Add(after*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
	}
	expected := ""
	for _, done := range []int{20, 40, 100} {
		expected += fmt.Sprintf("{\"progress\":\"%d of 100 items written\"}\n", done)
	}
	if out.String() != expected {
		t.Error(out)
	}
}
