package lab

// Serves the lab: reads calls from its input and answers each on its output, one JSON object per line.
//
//	{"call":"open","options":{...}}          -> {"done":{}}
//	{"call":"work","work":{"do":"mix",...}}  -> {"progress":1000} ... {"done":{"seconds":0.5,...},"items":1000}
//	{"call":"get","reader":1,"bytes":24} key -> {"done":{},"found":true,"bytes":150} value
//
// The other side is crates/esker-bench/src/engines/go/process.rs. Keys and values follow their line. Pairs
// are two lengths (u32, little-endian), the key and the value. The length noValue stands for a removal.
//
// A call of work runs a whole loop of operations here, between looks at this process's clock. The time that
// the pipe takes is in no result, except in the openings of suite open.

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"esker.invalid/bench/generate"
)

const (
	progressEvery = time.Second
	noValue       = ^uint32(0)
)

// request is a call. Its fields depend on the call.
type request struct {
	Call         string          `json:"call"`
	Engine       string          `json:"engine"`
	Dir          string          `json:"dir"`
	Source       source          `json:"source"`
	Transactions TransactionKind `json:"transactions"`
	Options      OpenOptions     `json:"options"`
	Durability   Durability      `json:"durability"`
	Deadline     time.Duration   `json:"deadline_ns"`
	Work         work            `json:"work"`
	Reader       int             `json:"reader"` // 0: the newest state
	Limit        uint64          `json:"limit"`
	Bytes        int             `json:"bytes"` // that follow the line
}

// reply is the answer to a call.
type reply struct {
	Done      done    `json:"done"`
	Seconds   float64 `json:"seconds,omitempty"`
	Items     uint64  `json:"items"`
	LiveBytes uint64  `json:"live_bytes"`
	Reader    int     `json:"reader,omitempty"`
	Found     bool    `json:"found,omitempty"`
	Count     uint64  `json:"count,omitempty"`
	Bytes     int     `json:"bytes,omitempty"`
	payload   []byte
}

// failure is the answer to a call that failed.
type failure struct {
	Kind string `json:"kind"` // a variant of esker_bench_api::Failure
	Text string `json:"text"`
}

// executor is the state that the calls have led to.
type executor struct {
	engines      []Engine
	engine       Engine
	dir          string
	kind         TransactionKind
	within       *OpenOptions // options to open with in the next work, within its time
	store        Store
	keyspaces    Keyspaces
	transactions Transactions
	expiring     Expiring
	readers      map[int]Reader
	reader       int // the number of the last reader

	items        *items
	content      content
	rng          *generate.Rng
	hotspotPairs uint64
	changes      uint64 // of all accounts
	moments      moments
}

// Serve answers calls until its input ends.
func Serve(engines []Engine, in io.Reader, out io.Writer) error {
	dieWithTheRunner()
	x := &executor{engines: engines}
	lines, answers := bufio.NewReaderSize(in, 1<<16), bufio.NewWriterSize(out, 1<<16)
	write := func(value any, payload []byte) error {
		text, err := json.Marshal(value)
		if err != nil {
			return err
		}
		_, err = answers.Write(append(text, '\n'))
		_, payloadErr := answers.Write(payload)
		return errors.Join(err, payloadErr, answers.Flush())
	}
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return x.close()
		}
		var asked request
		if err := errors.Join(err, json.Unmarshal(line, &asked)); err != nil {
			return err
		}
		payload := make([]byte, asked.Bytes)
		if _, err := io.ReadFull(lines, payload); err != nil {
			return err
		}
		reported := time.Now()
		report := func(done uint64) {
			if now := time.Now(); now.Sub(reported) >= progressEvery {
				reported = now
				_ = write(map[string]uint64{"progress": done}, nil) // if the lab has gone, the answer fails as well
			}
		}
		answer, err := x.call(asked, payload, report)
		if err != nil {
			err = write(map[string]failure{"failure": failureOf(err)}, nil)
		} else {
			answer.Bytes = len(answer.payload)
			answer.Items, answer.LiveBytes = x.content.to, x.bytesThere()
			err = write(answer, answer.payload)
		}
		if err != nil {
			return err
		}
	}
}

func failureOf(err error) failure {
	var u Unsupported
	var w wrong
	switch {
	case errors.As(err, &u):
		return failure{"unsupported", u.Why}
	case errors.As(err, &w):
		return failure{"wrong", w.what}
	case errors.Is(err, ErrTooLarge):
		return failure{"too large", err.Error()}
	}
	return failure{"engine", err.Error()}
}

// bytesThere returns the bytes of the live keys and values.
func (x *executor) bytesThere() uint64 {
	switch {
	case x.items == nil:
		return 0
	case x.items.Kind == "entries":
		return x.lastingBytes()
	}
	return x.liveBytes()
}

func (x *executor) call(asked request, payload []byte, report progress) (answer reply, err error) {
	switch asked.Call {
	case "start":
		return answer, x.start(asked)
	case "open":
		return answer, errors.Join(x.close(), x.open(asked.Options))
	case "open_within":
		err = x.close()
		x.within = &asked.Options
	case "close":
		return answer, x.close()
	case "set_durability":
		if x.store != nil {
			err = x.store.SetDurability(asked.Durability)
		}
	case "work":
		answer.Done, err = x.work(asked.Work, report)
	case "compact":
		answer.Seconds, err = timed(x.store.Compact)
		err = errors.Join(err, x.store.Reopen())
	case "drain":
		err = x.drain(time.Now().Add(asked.Deadline))
	case "collect":
		runtime.GC() // garbage of earlier rows is collected before the row begins
	case "check_held":
		loaded := content{to: x.content.to}
		err = fullScan(x.readers[asked.Reader], loaded.to, loaded.sum(x.items, ^uint64(0), generate.Checksum))
	default:
		return x.onePair(asked, payload)
	}
	return answer, err
}

// start discards the state of earlier calls, and takes an engine, a directory and items.
func (x *executor) start(asked request) error {
	engines := x.engines
	*x = executor{
		engines: engines, dir: asked.Dir, kind: asked.Transactions, items: newItems(asked.Source),
		rng: generate.NewRng(asked.Source.Seed), readers: map[int]Reader{},
	}
	for _, engine := range engines {
		if engine.Name() == asked.Engine {
			x.engine = engine
			return nil
		}
	}
	return fmt.Errorf("no engine %s", asked.Engine)
}

func (x *executor) open(options OpenOptions) (err error) {
	switch x.items.Kind {
	case "keyspaces":
		x.keyspaces, err = OpenKeyspaces(x.engine, x.dir, options, uint32(x.items.Number))
	case "accounts":
		x.transactions, err = x.engine.(TransactionEngine).OpenTransactions(x.dir, options, x.kind)
	case "entries":
		if native, expires := x.engine.(ExpiringEngine); expires {
			x.expiring, err = native.OpenExpiring(x.dir, options)
		} else {
			err = Unsupported{"its entries do not expire"}
		}
	default:
		x.store, err = x.engine.Open(x.dir, options)
	}
	return err
}

func (x *executor) close() (err error) {
	for id, reader := range x.readers {
		err = errors.Join(err, reader.Close())
		delete(x.readers, id)
	}
	switch {
	case x.store != nil:
		err = errors.Join(err, x.store.Close())
	case x.keyspaces != nil:
		err = x.keyspaces.Close()
	case x.transactions != nil:
		err = x.transactions.Close()
	case x.expiring != nil:
		err = x.expiring.Close()
	}
	x.store, x.keyspaces, x.transactions, x.expiring, x.within = nil, nil, nil, nil, nil
	return err
}

func (x *executor) drain(deadline time.Time) error {
	switch {
	case x.store != nil:
		return x.store.Drain(deadline)
	case x.keyspaces != nil:
		return x.keyspaces.Drain(deadline)
	case x.transactions != nil:
		return x.transactions.Drain(deadline)
	case x.expiring != nil:
		return x.expiring.Drain(deadline)
	}
	return nil
}

func (x *executor) work(w work, report progress) (end done, err error) {
	opening := 0.0
	if within := x.within; within != nil {
		x.within = nil
		if opening, err = timed(func() error { return x.open(*within) }); err != nil {
			return end, err
		}
	}
	switch {
	case x.keyspaces != nil:
		end, err = x.onKeyspaces(w)
	case x.transactions != nil:
		end, err = x.onTransactions(w, report)
		end.Note = string(x.kind)
	case x.expiring != nil:
		end, err = x.onExpiring(w, report)
	case x.store != nil:
		end, err = x.onStore(w, report)
	default:
		err = errors.New("nothing is open")
	}
	end.Seconds += opening
	return end, err
}

// onePair answers the calls of suites that write and read single pairs.
func (x *executor) onePair(asked request, payload []byte) (answer reply, err error) {
	show := func(key, value []byte) {
		answer.payload = binary.LittleEndian.AppendUint32(answer.payload, uint32(len(key)))
		answer.payload = binary.LittleEndian.AppendUint32(answer.payload, uint32(len(value)))
		answer.payload = append(append(answer.payload, key...), value...)
	}
	visit := func(value []byte) { answer.payload = append(answer.payload, value...) }
	reader := x.readers[asked.Reader]
	switch {
	case x.store == nil:
		err = errors.New("no store is open")
	case asked.Call == "write":
		err = x.store.Write(func(w Writer) error { return writePairs(w, payload) })
	case asked.Call == "get" && reader == nil:
		answer.Found, err = x.store.Get(payload, visit)
	case asked.Call == "get":
		answer.Found, err = reader.Get(payload, visit)
	case asked.Call == "range" && reader == nil:
		answer.Count, err = x.store.Range(payload, asked.Limit, show)
	case asked.Call == "range":
		answer.Count, err = reader.Range(payload, asked.Limit, show)
	case asked.Call == "keys":
		answer.Count, err = reader.Keys(payload, asked.Limit, func(key []byte) { show(key, nil) })
	case asked.Call == "len":
		answer.Count, err = reader.Len()
	case asked.Call == "hold":
		x.reader++
		answer.Reader = x.reader
		x.readers[x.reader], err = x.store.Reader()
	case asked.Call == "release":
		delete(x.readers, asked.Reader)
		err = reader.Close()
	default:
		err = fmt.Errorf("no call %s", asked.Call)
	}
	return answer, err
}

func writePairs(w Writer, pairs []byte) error {
	for len(pairs) > 0 {
		key, value := binary.LittleEndian.Uint32(pairs), binary.LittleEndian.Uint32(pairs[4:])
		pairs = pairs[8:]
		if value == noValue {
			if err := w.Remove(pairs[:key]); err != nil {
				return err
			}
			pairs = pairs[key:]
			continue
		}
		if err := w.Put(pairs[:key], pairs[key:key+value]); err != nil {
			return err
		}
		pairs = pairs[key+value:]
	}
	return nil
}
