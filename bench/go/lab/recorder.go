package lab

// A suite's side of a row: crates/esker-bench/src/recorder.rs in Go.
//
// A row is told twice: as soon as it is measured, and again when the next begins, with what the wait for background work added and with
// the verdict of the untimed checks that follow it.
//
// C2. What a check finds wrong may be the doing of any row that wrote since the last check that found all right: it voids them all. Those that
// were told to their end are told again.
//
// C1. Rows are recorded in the order in which the suite lists them, each once.

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// Row of a suite before it is measured.
type Row struct {
	Name string `json:"name"`
	Unit string `json:"unit"` // "s", "bytes", "bytes/s" or "ops/s"
	Ops  uint64 `json:"ops"`  // operations that the value stands for; 0 or 1 where the row counts them itself

	Group   int `json:"group"` // rows of a group share one process and one directory
	commits uint64
}

func seconds(name string, ops uint64) Row { return Row{Name: name, Unit: "s", Ops: ops} }
func size(name string) Row                { return Row{Name: name, Unit: "bytes", Ops: 1} }
func rate(name string, group int) Row     { return Row{Name: name, Unit: "ops/s", Ops: 1, Group: group} }

func (row Row) withCommits(commits uint64) Row {
	row.commits = commits
	return row
}

func (row Row) better() string {
	if row.Unit == "ops/s" || row.Unit == "bytes/s" {
		return "higher"
	}
	return "lower"
}

// Recorder writes the messages of one run.
type Recorder struct {
	rows    []Row
	blank   record
	dir     string
	pending *record

	unchecked    []*record // rows that wrote and were told to their end, since the last check that found all right (C2)
	pendingWrote bool

	out    io.Writer
	traced bool

	noteForNext    string // what the next row has to say of what came before it
	figuresForNext map[string]float64
	load           *counters // what had been used when a load that is no row began, until it is drained

	idleWindow  time.Duration // how long a process does nothing before it counts as idle
	idleWaitMax time.Duration // how long to wait for that
}

// markRoot is where a tracer finds the beginnings and ends of rows: files that are not there.
const markRoot = "/esker-bench-mark"

func (r *Recorder) mark(what, name string) {
	if r.traced {
		if file, err := os.Open(markRoot + "/" + what + "/" + name); err == nil {
			file.Close()
		}
	}
}

// outcome is what a row's work says about itself; what it leaves at zero, the recorder takes from its clock and the row.
type outcome struct {
	seconds          float64 // the time that counts, when the work had to prepare something first
	value            float64 // the value itself, when it is neither the time nor a rate over it
	ops              uint64
	commits          uint64
	userWrittenBytes uint64
	liveBytes        uint64
	detail           *detail
	note             string // what a reader has to know
	rewrites         bool   // whether it wrote the data anew without a commit, as a compaction does (C2)
}

// on says on how many items the row began: where rows before it were cut by time, a faster engine has more of them.
func (out outcome) on(items uint64) outcome {
	if out.detail != nil {
		out.detail.figure("items when it began", float64(items))
	}
	return out
}

// row measures work. A wrong answer or a missing feature becomes the row's error; other errors end the run.
func (r *Recorder) row(name string, work func() (outcome, error)) error {
	return r.rowOfPasses(name, 1, work)
}

// rowOfPasses measures work as often as passes says; the row's value is the median.
func (r *Recorder) rowOfPasses(name string, passes int, work func() (outcome, error)) error {
	rec, err := r.begin(name)
	if err != nil {
		return err
	}
	var values []float64
	var failure error
	rewrites := false
	for range passes {
		var out outcome
		r.mark("begin", name)
		took, used, err := measure(r.dir, func() (err error) {
			out, err = work()
			return err
		})
		r.mark("end", name)
		rec.usage = combine(rec.usage, used)
		if err != nil {
			failure = err
			break
		}
		rewrites = rewrites || out.rewrites
		values = append(values, rec.takeOver(out, took))
	}
	if failure != nil {
		rec.Error = failure.Error()
	} else {
		value := median(values)
		rec.Value = &value
	}
	if passes > 1 {
		rec.Passes = values
	}
	err = r.measured(rec)
	r.pendingWrote = rewrites || rec.Commits > 0 || rec.UserWrittenBytes > 0
	if failure != nil && !rowOnly(failure) {
		return errors.Join(failure, err, r.flush())
	}
	return err
}

// takeOver moves what the work said into the record; it returns the value of the pass.
func (rec *record) takeOver(out outcome, took float64) float64 {
	if out.seconds > 0 {
		took = out.seconds
	}
	if out.ops > 0 {
		rec.Ops = out.ops
	}
	if out.commits > 0 {
		rec.Commits = out.commits
	}
	rec.UserWrittenBytes += out.userWrittenBytes
	rec.LiveBytes = out.liveBytes
	rec.Detail = out.detail
	if !strings.Contains(rec.Note, out.note) { // the passes of a row say the same
		rec.addNote(out.note)
	}
	switch {
	case out.value > 0:
		return out.value
	case rec.Unit == "ops/s":
		return float64(rec.Ops) / took
	}
	return took
}

// loading runs a load that is no row. What it takes stands among the figures of the next row, with what the drain behind it takes: time, and the
// bytes that the process wrote in both.
func (r *Recorder) loading(what string, all uint64, load func(*howFar) error) error {
	before, start := countersOf(r.dir), time.Now()
	if err := load(r.howFar(what, all)); err != nil {
		return err
	}
	r.figuresForNext = map[string]float64{"load s": time.Since(start).Seconds()}
	r.load = &before
	return nil
}

// drainer is what can be waited for: an engine that does not come to rest before the deadline is left to its work.
type drainer interface {
	Drain(deadline time.Time) error
}

// drain waits until the engine owes no background work, and until what it wrote has left the page cache for the device. The time that it takes
// stands beside the row before, if there is one; what it moves and computes is that row's. An engine that does not come to rest in time is left to its
// work, and the row says so; before the first row, the first.
func (r *Recorder) drain(store drainer) error {
	start := time.Now()
	deadline := start.Add(r.idleWaitMax)
	if r.traced { // a tracer keeps a process busy that would be idle without it
		return store.Drain(deadline)
	}
	peaks := watchPeaks(r.dir)
	before := countersOf(r.dir)
	if err := store.Drain(deadline); err != nil {
		return err
	}
	drained := time.Since(start)
	busy, isIdle := waitUntilIdle(r.idleWindow, time.Until(deadline))
	took := (drained + busy).Seconds()
	if r.blank.Scale != "test" {
		start = time.Now()
		settleDisk()
		took += time.Since(start).Seconds()
	}
	reached := peaks()
	if r.load != nil {
		var used usage
		used.add(*r.load, countersOf(r.dir))
		r.load = nil
		r.figuresForNext["load drain s"], r.figuresForNext["load written bytes"] = took, float64(used.WrittenBytes)
	}
	if r.pending != nil {
		r.pending.detailOf().DrainS = &took
		r.pending.usage.add(before, countersOf(r.dir))
		r.pending.usage.size(r.dir)
		r.pending.usage.reach(reached)
	}
	if !isIdle {
		note := fmt.Sprintf("background work went on after %v s", r.idleWaitMax.Seconds())
		if r.pending != nil {
			r.pending.addNote(note)
		} else {
			r.noteForNext = note
		}
	}
	return nil
}

// settle waits for the work that opening the database has begun: it is of no row.
func (r *Recorder) settle(store drainer) error {
	return errors.Join(r.flush(), r.drain(store))
}

// failed records a row that is not tried, and why.
func (r *Recorder) failed(name string, err error) error {
	rec, beginErr := r.begin(name)
	if beginErr != nil {
		return beginErr
	}
	rec.Error = err.Error()
	return r.measured(rec)
}

// sizeRow records what the files occupy; their lengths, which count the holes of sparse ones too, stand beside it.
// liveBytes are those of the keys and values that are there.
func (r *Recorder) sizeRow(name string, liveBytes uint64) error {
	rec, err := r.begin(name)
	if err != nil {
		return err
	}
	rec.usage.size(r.dir)
	rec.LiveBytes = liveBytes
	value := float64(rec.DiskAllocatedBytes)
	rec.Value = &value
	rec.detailOf().figure("file length bytes", float64(rec.DiskBytes))
	return r.measured(rec)
}

// check takes the outcome of an untimed check of all that has been written: a wrong answer, or an engine that cannot give one, fails the row
// before it, and all rows that wrote since the last check that found all right (C2).
func (r *Recorder) check(err error) error {
	unchecked := r.unchecked
	r.unchecked = nil
	if err == nil {
		r.pendingWrote = false
		return nil
	}
	for _, rec := range unchecked {
		rec.void(err)
		if err := send(r.out, map[string]*record{"row": rec}); err != nil {
			return err
		}
	}
	return r.checkRow(err)
}

// checkRow takes the outcome of an untimed check of what the row before it did: a wrong answer fails that row alone. What other rows wrote stays
// unchecked.
func (r *Recorder) checkRow(err error) error {
	var w wrong
	if errors.As(err, &w) && r.pending != nil {
		r.pending.void(w)
		return nil
	}
	return err
}

// void takes a row's value: its data is wrong.
func (rec *record) void(err error) {
	rec.Value = nil
	if rec.Error == "" {
		rec.Error = err.Error()
	}
}

func (r *Recorder) finish() error {
	if err := r.flush(); err != nil {
		return err
	}
	if len(r.rows) > 0 {
		return fmt.Errorf("C1: row %s was not recorded", r.rows[0].Name)
	}
	return send(r.out, "done")
}

func (r *Recorder) begin(name string) (*record, error) {
	if err := r.flush(); err != nil {
		return nil, err
	}
	if len(r.rows) == 0 || r.rows[0].Name != name {
		return nil, fmt.Errorf("C1: not the time for row %s", name)
	}
	rec := r.blank
	rec.Row, rec.Unit, rec.Better, rec.Ops = name, r.rows[0].Unit, r.rows[0].better(), r.rows[0].Ops
	rec.Commits, rec.Started = r.rows[0].commits, time.Now().UnixMilli()
	rec.Note, r.noteForNext = r.noteForNext, ""
	r.rows = r.rows[1:]
	return &rec, send(r.out, map[string]string{"begin": name})
}

// measured tells of a row that is measured, and keeps it for its checks.
func (r *Recorder) measured(rec *record) error {
	for name, value := range r.figuresForNext {
		rec.detailOf().figure(name, value)
	}
	r.pending, r.figuresForNext = rec, nil
	return send(r.out, map[string]*record{"measured": rec})
}

func (r *Recorder) flush() error {
	if r.pending == nil {
		return nil
	}
	rec := r.pending
	if r.pendingWrote {
		r.unchecked = append(r.unchecked, rec)
	}
	r.pending, r.pendingWrote = nil, false
	return send(r.out, map[string]*record{"row": rec})
}

// rowOnly tells failures of one row from those that end the run.
func rowOnly(err error) bool {
	var u Unsupported
	var w wrong
	return errors.As(err, &u) || errors.As(err, &w)
}

// combine sums what adds up and keeps the highest or latest of the rest.
func combine(a, b usage) usage {
	b.PeakRssBytes = max(a.PeakRssBytes, b.PeakRssBytes)
	b.reach(peaks{a.PeakAnonBytes, a.PeakFileBytes, a.PeakDiskBytes})
	b.WrittenBytes += a.WrittenBytes
	b.ReadBytes += a.ReadBytes
	b.DeviceWrittenBytes += a.DeviceWrittenBytes
	b.DeviceReadBytes += a.DeviceReadBytes
	b.CPUSeconds += a.CPUSeconds
	return b
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}
