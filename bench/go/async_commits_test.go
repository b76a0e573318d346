package main

// AY1: what an adapter says of its async commits is so when the process that made them is killed.

import (
	"bufio"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"esker.invalid/bench/lab"
)

const (
	asyncCommits = 1500
	// A thread may have written just before a kill.
	asyncKillsMax = 5
	// In the environment of the process that writes: this program is the tests'.
	asyncWriterEnv = "ESKER_BENCH_ASYNC_WRITER"
)

func TestMain(m *testing.M) {
	if engine := os.Getenv(asyncWriterEnv); engine != "" {
		if err := lab.AsyncWriter(engines, []string{engine, strconv.Itoa(asyncCommits), os.Args[1]}); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// survivors kills a process that has made its commits, and tells how many are there.
func survivors(t *testing.T, engine lab.Engine) uint64 {
	dir := t.TempDir()
	writer := exec.Command(os.Args[0], dir)
	writer.Env = append(os.Environ(), asyncWriterEnv+"="+engine.Name())
	writer.Stderr = os.Stderr
	stdout, err := writer.StdoutPipe()
	if err == nil {
		err = writer.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	isReady := bufio.NewScanner(stdout).Scan()
	if err := writer.Process.Kill(); err != nil || !isReady {
		t.Fatal(isReady, err)
	}
	_ = writer.Wait() // it was killed
	there, err := lab.AsyncSurvivors(engines, []string{engine.Name(), strconv.Itoa(asyncCommits), dir})
	if err != nil {
		t.Fatal(engine.Name(), err)
	}
	return there
}

// outlivesAKill tells whether all commits are there behind a kill; where some may have been written just before, behind each of several.
func outlivesAKill(t *testing.T, engine lab.Engine, kills int) bool {
	for range kills {
		there := survivors(t, engine)
		t.Log(engine.Name(), there)
		if there < asyncCommits {
			return false
		}
	}
	return true
}

func TestAsyncCommitsAreWhatTheirAdaptersSay(t *testing.T) {
	for _, engine := range engines {
		said := engine.AsyncCommits()
		if (said == nil) != (engine.Cannot(lab.AsyncCommits) != "") {
			t.Error(engine.Name(), "has the mode and says nothing of it, or lacks it")
		}
		switch {
		case said == nil:
		case said.Then == "" || said.Pointer == "":
			t.Error(engine.Name(), "does not say what comes then, or where that stands")
		case said.Reached == lab.InSystem && !outlivesAKill(t, engine, 1):
			t.Error(engine.Name(), "loses commits that it says are handed to the operating system")
		case said.Reached == lab.InProcess && outlivesAKill(t, engine, asyncKillsMax):
			t.Error(engine.Name(), "keeps all commits that it says are in the process alone")
		}
	}
}
