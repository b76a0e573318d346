package lab

// One run of one suite on one engine: what crates/esker-bench/src/child.rs is in Rust.

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"time"
)

// Child runs what the arguments SUITE ENGINE SCALE RUN DIR [--commit HASH] [--traced] say and writes messages to stdout.
func Child(engines []Engine, args []string) error {
	if len(args) < 5 {
		return fmt.Errorf("child needs SUITE ENGINE SCALE RUN DIR")
	}
	flags := flag.NewFlagSet("child", flag.ContinueOnError)
	commit := flags.String("commit", "", "commit of the repository")
	group := flags.Int("group", 0, "which of the suite's groups of rows")
	memoryLimit := flags.String("memory-limit", "", "how memory is limited, for the record")
	traced := flags.Bool("traced", false, "mark the rows for a tracer")
	if err := flags.Parse(args[5:]); err != nil {
		return err
	}
	suite, err := FindSuite(args[0])
	if err != nil {
		return err
	}
	engine, err := findEngine(engines, args[1])
	if err != nil {
		return err
	}
	run, err := strconv.ParseUint(args[3], 10, 32)
	if err != nil {
		return err
	}
	dieWithTheRunner()
	r := &Recorder{
		rows: rowsOf(suite, args[2], *group),
		blank: record{
			Suite: args[0], Engine: args[1], Version: Version(engine), Scale: args[2], Run: uint32(run), Commit: *commit,
			MemoryLimit: *memoryLimit,
		},
		dir:    args[4],
		out:    os.Stdout,
		traced: *traced,

		idleWindow:  idleWindow(args[2]),
		idleWaitMax: idleWaitMax(),
	}
	if err := suite.Run(engine, args[2], *group, r); err != nil {
		return err
	}
	return r.finish()
}

// idleWindow is that of Scale::idle_window of the Rust side.
func idleWindow(scale string) time.Duration {
	if scale == "test" {
		return 20 * time.Millisecond
	}
	return 100 * time.Millisecond
}

func findEngine(engines []Engine, name string) (Engine, error) {
	for _, engine := range engines {
		if engine.Name() == name {
			return engine, nil
		}
	}
	return nil, fmt.Errorf("no engine %s", name)
}
