// Prints what a test of esker-bench holds against the Rust side. It has no engine in it, so it builds in seconds.
//
//	describe streams      checksums of every generator
//	describe rows SCALE   rows of every suite with their counts
//	describe records      every suite at the smallest scale on a map in memory, as messages: what each row does
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"esker.invalid/bench/generate"
	"esker.invalid/bench/lab"
)

func main() {
	var answer any
	switch args := os.Args[1:]; {
	case len(args) == 1 && args[0] == "streams":
		answer = generate.Streams(33)
	case len(args) == 2 && args[0] == "rows":
		rows := map[string][]lab.Row{}
		for _, suite := range lab.Suites {
			rows[suite.Name()] = suite.Rows(args[1])
		}
		answer = rows
	case len(args) == 1 && args[0] == "records":
		fail(rehearse())
		return
	default:
		fmt.Fprintln(os.Stderr, "usage: describe streams | describe rows SCALE | describe records")
		os.Exit(2)
	}
	fail(json.NewEncoder(os.Stdout).Encode(answer))
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func rehearse() error {
	dir, err := os.MkdirTemp("", "esker-bench-go")
	if err != nil {
		return err
	}
	return errors.Join(lab.Rehearse(lab.Memory{}, dir, os.Stdout), os.RemoveAll(dir))
}
