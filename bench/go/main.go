// The lab's engines that are written in Go: one program that runs a suite once on one engine, as `esker-bench child`
// does for engines in Rust, with the same arguments, the same bytes of every workload and the same messages on stdout.
//
//	esker-bench --arguments--> main -> lab/suite_*.go --drives--> badger.go, pebble.go, bbolt.go, goleveldb.go
//	                             '--Message lines on stdout--> esker-bench
//
// lab/engine.go has the interfaces, generate/ the bytes, lab/recorder.go and lab/measure.go what a row is made of.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"esker.invalid/bench/lab"
)

const usage = `usage:
  peers child SUITE ENGINE SCALE RUN DIR [--commit HASH] [--traced]   run a suite, as esker-bench asks for it
  peers open-writer ENGINE COUNT END DIR                              the process that writes for suite open
  peers async-writer ENGINE COMMITS DIR                               a process that makes async commits and waits to be killed
  peers async-survivors ENGINE COMMITS DIR                            how many of them are there
  peers cost KIND OPS DIR                                             what one call costs on an engine that does nothing
  peers engines                                                       engines and options, as engines.json has them`

var engines = []lab.Engine{badgerEngine{}, pebbleEngine{}, bboltEngine{}, goleveldbEngine{}}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) > 1 && args[0] == "child":
		return lab.Child(engines, args[1:])
	case len(args) > 1 && args[0] == "open-writer":
		return lab.OpenWriter(engines, args[1:])
	case len(args) > 1 && args[0] == "async-writer":
		return lab.AsyncWriter(engines, args[1:])
	case len(args) > 1 && args[0] == "async-survivors":
		there, err := lab.AsyncSurvivors(engines, args[1:])
		if err == nil {
			fmt.Println(there)
		}
		return err
	case len(args) > 1 && args[0] == "cost":
		return lab.Cost(args[1:], os.Stdout)
	case len(args) == 1 && args[0] == "engines":
		_, err := os.Stdout.Write(describe())
		return err
	}
	return fmt.Errorf("%s", usage)
}

// describe gives what engines.json holds, for esker-bench to show without building this program.
func describe() []byte {
	type described struct {
		Name         string            `json:"name"`
		Module       string            `json:"module"`
		Isolation    string            `json:"isolation"`
		AsyncCommits *lab.AsyncMode    `json:"async_commits"`
		Cannot       map[string]string `json:"cannot"`
		Options      []lab.Option      `json:"options"`
		Suites       []string          `json:"suites"`
	}
	suites := []string{}
	for _, suite := range lab.Suites {
		suites = append(suites, suite.Name())
	}
	list := []described{}
	for _, engine := range engines {
		cannot := map[string]string{}
		for feature, name := range lab.FeatureNames {
			if why := engine.Cannot(feature); why != "" {
				cannot[name] = why
			}
		}
		list = append(list, described{engine.Name(), engine.Module(), engine.Isolation(), engine.AsyncCommits(), cannot, engine.Options(), suites})
	}
	text, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		panic(err) // strings and maps of strings always marshal
	}
	return append(text, '\n')
}
