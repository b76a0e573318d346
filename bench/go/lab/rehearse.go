package lab

// Every suite at the smallest scale, within this process: for tests, and to hold what a suite does against the Rust side.

import (
	"io"
	"os"
	"path/filepath"
	"strconv"
)

// Rehearse runs all groups of all suites on an engine, in directories under dir, and writes what Child writes.
func Rehearse(engine Engine, dir string, out io.Writer) error {
	for _, suite := range Suites {
		for group := range groupsOf(suite, "test") {
			if err := rehearse(suite, group, engine, filepath.Join(dir, suite.Name(), strconv.Itoa(group)), out); err != nil {
				return err
			}
		}
	}
	return nil
}

func rehearse(suite Suite, group int, engine Engine, dir string, out io.Writer) error {
	// The process that writes for suite open has no part in this: its work is done here.
	writeElsewhere = func(engine Engine, dir string, count uint64, end string) (string, error) {
		if end == endClose {
			return openLoadAndClose(engine, dir, count, 0)
		}
		_, err := openLoadAndMore(engine, dir, count)
		return openReady, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { // an engine in memory makes none
		return err
	}
	blank := record{Suite: suite.Name(), Engine: engine.Name(), Scale: "test"}
	r := &Recorder{rows: rowsOf(suite, "test", group), blank: blank, dir: dir, out: out, idleWindow: 0, idleWaitMax: idleWaitLong}
	if err := suite.Run(engine, "test", group, r); err != nil {
		return err
	}
	return r.finish()
}
