// The lab's engines that are written in Go: one program that does the work of suites on them, as esker-bench
// asks for it through a pipe.
//
//	esker-bench --calls--> lab/serve.go -> lab/work.go --drives--> badger, pebble, bbolt, goleveldb
//	            <-answers--'
//
// lab/engine.go has the interfaces, generate/ the bytes, lab/track.go the latencies.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"esker.invalid/bench/lab"
)

const usage = `usage:
  peers serve      do what esker-bench asks for on the input
  peers engines    engines and options, as engines.json has them`

var engines = []lab.Engine{badgerEngine{}, pebbleEngine{}, bboltEngine{}, goleveldbEngine{}}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 1 && args[0] == "serve":
		return lab.Serve(append(engines, lab.Echo{}), os.Stdin, os.Stdout)
	case len(args) == 1 && args[0] == "engines":
		_, err := os.Stdout.Write(describe())
		return err
	}
	return fmt.Errorf("%s", usage)
}

// describe returns the content of engines.json, which esker-bench shows without building this program.
func describe() []byte {
	type described struct {
		Name         string                `json:"name"`
		Module       string                `json:"module"`
		Isolation    string                `json:"isolation"`
		AsyncCommits *lab.AsyncMode        `json:"async_commits"`
		Cannot       map[string]string     `json:"cannot"`
		Options      []lab.Option          `json:"options"`
		Transactions []lab.TransactionKind `json:"transactions"`
	}
	list := []described{}
	for _, engine := range engines {
		cannot := map[string]string{}
		for feature, name := range lab.FeatureNames {
			if why := engine.Cannot(feature); why != "" {
				cannot[name] = why
			}
		}
		kinds := []lab.TransactionKind{}
		if native, isNative := engine.(lab.TransactionEngine); isNative {
			kinds = native.TransactionKinds()
		}
		list = append(list, described{engine.Name(), engine.Module(), engine.Isolation(), engine.AsyncCommits(), cannot, engine.Options(), kinds})
	}
	text, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		panic(err) // strings and maps of strings always marshal
	}
	return append(text, '\n')
}
