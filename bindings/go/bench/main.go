// Speed of Esker beside bbolt, Badger and Pebble, and the cost of calling C from Go.
//
//	go run -tags esker_source . [-items 1000000] [-rounds 5]
//
// The engines take turns in each row, and another one begins each round. A round uses new directories. The
// first round warms up and is not counted. The tables have the medians of the others, as Markdown.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

func main() {
	items := flag.Int("items", 100_000, "entries in each database")
	rounds := flag.Int("rounds", 5, "rounds that count")
	only := flag.String("only", "", "comma-separated names of engines; empty: all")
	parts := flag.String("parts", "engines,cgo", "what to measure")
	directory := flag.String("dir", os.TempDir(), "where the databases are made")
	flag.Parse()
	if err := run(*items, *rounds, *only, *parts, *directory); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(items, rounds int, only, parts, directory string) error {
	base, err := os.MkdirTemp(directory, "esker-go-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(base)
	if strings.Contains(parts, "engines") {
		chosen := slices.DeleteFunc(slices.Clone(engines), func(e engine) bool {
			return only != "" && !slices.Contains(strings.Split(only, ","), e.name)
		})
		if err := compare(chosen, items, rounds, base); err != nil {
			return err
		}
	}
	if strings.Contains(parts, "cgo") {
		return costs(items, rounds, base)
	}
	return nil
}

// times has the microseconds for each item, by row and engine, of all rounds.
type times map[string]map[string][]float64

func (t times) add(row, engine string, took time.Duration, count int) {
	if t[row] == nil {
		t[row] = map[string][]float64{}
	}
	t[row][engine] = append(t[row][engine], float64(took.Nanoseconds())/1000/float64(count))
}

func compare(engines []engine, items, rounds int, base string) error {
	all := times{}
	for round := range rounds + 1 {
		kept := all
		if round == 0 {
			kept = times{}
		}
		directory := filepath.Join(base, strconv.Itoa(round))
		if err := oneRound(engines, newData(items, uint64(round)), directory, round, kept); err != nil {
			return err
		}
		if err := os.RemoveAll(directory); err != nil {
			return err
		}
		fmt.Fprintln(os.Stderr, "round", round, "of", rounds)
	}
	printTable(engines, all)
	return nil
}

func oneRound(engines []engine, d *data, directory string, round int, all times) error {
	stores := make([]store, len(engines))
	for at, engine := range engines {
		path := filepath.Join(directory, engine.name)
		if err := os.MkdirAll(path, 0o755); err != nil {
			return err
		}
		opened, err := engine.open(path)
		if err != nil {
			return fmt.Errorf("%s: %w", engine.name, err)
		}
		stores[at] = opened
	}
	for _, row := range rows {
		for turn := range engines {
			at := (turn + round) % len(engines)
			if err := oneRow(row, stores[at], d, engines[at].name, all); err != nil {
				return fmt.Errorf("%s: %s: %w", engines[at].name, row.name, err)
			}
		}
	}
	for at, opened := range stores {
		if err := opened.close(); err != nil {
			return fmt.Errorf("%s: %w", engines[at].name, err)
		}
	}
	return nil
}

func oneRow(row row, s store, d *data, engine string, all times) error {
	if row.needs != nil && !slices.Contains(s.durabilities(), *row.needs) {
		return nil
	}
	if row.prepare != nil {
		if err := row.prepare(s); err != nil {
			return err
		}
	}
	runtime.GC()
	start := time.Now()
	count, err := row.run(s, d)
	if err != nil {
		return err
	}
	all.add(row.name, engine, time.Since(start), count)
	return nil
}

func median(of []float64) float64 {
	sorted := slices.Sorted(slices.Values(of))
	return sorted[len(sorted)/2]
}

func printTable(engines []engine, all times) {
	fmt.Print("| us for each item |")
	for _, engine := range engines {
		fmt.Printf(" %s |", engine.name)
	}
	fmt.Printf("\n|---|%s\n", strings.Repeat("---:|", len(engines)))
	for _, row := range rows {
		best := 0.0
		for _, of := range all[row.name] {
			if m := median(of); best == 0 || m < best {
				best = m
			}
		}
		fmt.Printf("| %s |", row.name)
		for _, engine := range engines {
			of := all[row.name][engine.name]
			switch {
			case len(of) == 0:
				fmt.Print(" |")
			case median(of) == best:
				fmt.Printf(" **%s** |", digits(median(of)))
			default:
				fmt.Printf(" %s |", digits(median(of)))
			}
		}
		fmt.Println()
	}
	printSpread(engines, all)
}

// printSpread shows on standard error how far the rounds were apart.
func printSpread(engines []engine, all times) {
	for _, row := range rows {
		for _, engine := range engines {
			if of := all[row.name][engine.name]; len(of) > 0 {
				fmt.Fprintf(os.Stderr, "%-28s %-7s %s to %s\n", row.name, engine.name,
					digits(slices.Min(of)), digits(slices.Max(of)))
			}
		}
	}
}

// digits writes a number with three digits.
func digits(number float64) string {
	switch {
	case number >= 100:
		return strconv.FormatFloat(number, 'f', 0, 64)
	case number >= 10:
		return strconv.FormatFloat(number, 'f', 1, 64)
	}
	return strconv.FormatFloat(number, 'f', 2, 64)
}
