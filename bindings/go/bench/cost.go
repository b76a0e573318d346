package main

// The cost of calling C from Go: the same call in a loop in C and in a loop in Go.
//
//	empty    esker_version, which returns a constant
//	get      a random key of a compacted database in the cache; the value is copied
//	range    10 entries from a random key on; in C one by one, in Go in a chunk
//	scan     all entries, in chunks of 64 KiB

// #cgo CFLAGS: -I${SRCDIR}/../../../crates/esker-c/include
// #cgo LDFLAGS: -L${SRCDIR}/../../../target/release -l:libesker_c.a -lgcc_s -lutil -lrt -lpthread -lm -ldl
// #cgo noescape cost_gets
// #cgo nocallback cost_gets
// #include <stdlib.h>
// #include "cost.h"
import "C"

import (
	"fmt"
	"path/filepath"
	"runtime"
	"time"
	"unsafe"
)

const (
	emptyCalls = 5_000_000
	chunkBytes = 64 << 10
)

// pair has a database that Go reads, and a copy that C reads.
type pair struct {
	data     *data
	lookups  []byte
	ofGo     *eskerStore
	ofC      *C.esker_db
	keyspace *C.esker_keyspace
}

func newPair(items int, base string) (*pair, error) {
	opened, err := openEsker(filepath.Join(base, "cost"))
	if err != nil {
		return nil, err
	}
	p := &pair{data: newData(items, 0), ofGo: opened.(*eskerStore)}
	if _, err := load(p.ofGo, p.data); err != nil {
		return nil, err
	}
	copied := filepath.Join(base, "copy")
	if err := p.ofGo.settle(); err != nil {
		return nil, err
	}
	if err := p.ofGo.db.Checkpoint(copied); err != nil {
		return nil, err
	}
	for range items {
		p.lookups = append(p.lookups, p.data.key()...)
	}
	path := C.CString(copied)
	defer C.free(unsafe.Pointer(path))
	return p, failed(C.cost_open(path, cacheBytes, &p.ofC, &p.keyspace))
}

func (p *pair) close() error {
	if err := failed(C.cost_close(p.ofC, p.keyspace)); err != nil {
		return err
	}
	return p.ofGo.close()
}

func failed(status C.int) error {
	if status != C.ESKER_OK {
		return fmt.Errorf("status %d in C", int(status))
	}
	return nil
}

// A cost is a call in C and in Go. Each returns how often it was made.
type cost struct {
	name   string
	inC    func(*pair) (int, error)
	inGo   func(*pair) (int, error)
	counts [2][]float64
}

func emptyInC(*pair) (int, error) {
	C.cost_empty(emptyCalls)
	return emptyCalls, nil
}

func emptyInGo(*pair) (int, error) {
	for range emptyCalls {
		C.esker_version()
	}
	return emptyCalls, nil
}

func getsInC(p *pair) (int, error) {
	count := len(p.lookups) / keyBytes
	keys := (*C.uint8_t)(unsafe.SliceData(p.lookups))
	return count, failed(C.cost_gets(p.keyspace, keys, keyBytes, C.size_t(count)))
}

func getsInGo(p *pair) (int, error) {
	count := len(p.lookups) / keyBytes
	for n := range count {
		if _, err := p.ofGo.get(p.lookups[n*keyBytes : (n+1)*keyBytes]); err != nil {
			return 0, err
		}
	}
	return count, nil
}

func rangesInC(p *pair) (int, error) {
	count := len(p.lookups) / keyBytes / 10
	keys := (*C.uint8_t)(unsafe.SliceData(p.lookups))
	return count, failed(C.cost_ranges(p.keyspace, keys, keyBytes, C.size_t(count), rangeItems))
}

func rangesInGo(p *pair) (int, error) {
	count := len(p.lookups) / keyBytes / 10
	for n := range count {
		if _, err := p.ofGo.scan(p.lookups[n*keyBytes:(n+1)*keyBytes], rangeItems); err != nil {
			return 0, err
		}
	}
	return count, nil
}

func scanInC(p *pair) (int, error) {
	var entries C.size_t
	err := failed(C.cost_scan(p.keyspace, chunkBytes, &entries))
	return int(entries), err
}

func scanInGo(p *pair) (int, error) { return scanAll(p.ofGo, p.data) }

func costs(items, rounds int, base string) error {
	p, err := newPair(items, base)
	if err != nil {
		return err
	}
	all := []*cost{
		{name: "an empty call", inC: emptyInC, inGo: emptyInGo},
		{name: "a cached get", inC: getsInC, inGo: getsInGo},
		{name: "a range of 10", inC: rangesInC, inGo: rangesInGo},
		{name: "an entry of a scan", inC: scanInC, inGo: scanInGo},
	}
	for round := range rounds + 1 {
		for _, cost := range all {
			for at, call := range []func(*pair) (int, error){cost.inC, cost.inGo} {
				runtime.GC()
				start := time.Now()
				count, err := call(p)
				if err != nil {
					return fmt.Errorf("%s: %w", cost.name, err)
				}
				if round > 0 {
					took := float64(time.Since(start).Nanoseconds()) / float64(count)
					cost.counts[at] = append(cost.counts[at], took)
				}
			}
		}
	}
	fmt.Println("\n| ns | in C | in Go | difference |\n|---|---:|---:|---:|")
	for _, cost := range all {
		inC, inGo := median(cost.counts[0]), median(cost.counts[1])
		fmt.Printf("| %s | %.1f | %.1f | %.1f |\n", cost.name, inC, inGo, inGo-inC)
	}
	return p.close()
}
