package lab

// Runs the calls of a group on an engine in memory that can lose puts.

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// memory is an engine of a map that loses some puts.
type memory struct {
	Echo
	loses  int // of the puts, those from this one on
	values map[string][]byte
	puts   int
}

func (m *memory) Name() string                            { return "memory" }
func (m *memory) Open(string, OpenOptions) (Store, error) { return m, nil }
func (m *memory) SetDurability(Durability) error          { return nil }
func (m *memory) Compact() error                          { return nil }
func (m *memory) Reopen() error                           { return nil }
func (m *memory) Drain(time.Time) error                   { return nil }
func (m *memory) Close() error                            { return nil }
func (m *memory) Write(work func(Writer) error) error     { return work(m) }
func (m *memory) Reader() (Reader, error)                 { return m, nil }
func (m *memory) Len() (uint64, error)                    { return uint64(len(m.values)), nil }
func (m *memory) Remove(key []byte) error                 { delete(m.values, string(key)); return nil }

func (m *memory) Put(key, value []byte) error {
	if m.puts++; m.loses == 0 || m.puts < m.loses {
		m.values[string(key)] = bytes.Clone(value)
	}
	return nil
}

func (m *memory) Get(key []byte, visit func([]byte)) (bool, error) {
	value, found := m.values[string(key)]
	if found {
		visit(value)
	}
	return found, nil
}

func (m *memory) Range(from []byte, limit uint64, visit func(key, value []byte)) (seen uint64, err error) {
	for _, key := range slices.Sorted(maps.Keys(m.values)) {
		if key >= string(from) && seen < limit {
			visit([]byte(key), m.values[key])
			seen++
		}
	}
	return seen, nil
}

func (m *memory) Keys(from []byte, limit uint64, visit func(key []byte)) (uint64, error) {
	return m.Range(from, limit, func(key, _ []byte) { visit(key) })
}

// calls to a store of items of a kind, each with its work.
func serve(t *testing.T, loses int, source string, works ...string) (answers []map[string]json.RawMessage) {
	t.Helper()
	lines := []string{`{"call":"start","engine":"memory","dir":"` + t.TempDir() + `","source":` + source + `}`, `{"call":"open","options":{}}`}
	for _, work := range works {
		lines = append(lines, `{"call":"work","work":`+work+`}`)
	}
	var out bytes.Buffer
	engine := &memory{loses: loses, values: map[string][]byte{}}
	if err := Serve([]Engine{engine}, strings.NewReader(strings.Join(lines, "\n")+"\n"), &out); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		var answer map[string]json.RawMessage
		if err := json.Unmarshal([]byte(line), &answer); err != nil {
			t.Fatal(err)
		}
		answers = append(answers, answer)
	}
	return answers[2:]
}

func TestWorkIsVerified(t *testing.T) {
	check := []string{`{"do":"check"}`}
	const hour = `"budget":{"ns":3600000000000,"ops":60},"period_ns":100000000`
	for _, c := range []struct {
		source string
		works  []string
	}{
		{`{"kind":"items","seed":3,"value_bytes":150}`, []string{`{"do":"put","count":90,"size":90}`, `{"do":"remove"}`}},
		{`{"kind":"badger","seed":13,"value_bytes":128}`, []string{
			`{"do":"put","count":90,"size":20,"below":90,"period_ns":100000000}`, `{"do":"scan","limit":50}`,
			`{"do":"mix","percent":[100,0,0,0,0],"draw":"uniform","reads_seed":14,` + hour + `}`,
		}},
		{`{"kind":"storage","seed":7,"value_bytes":512}`, []string{
			`{"do":"put","count":90,"size":10}`, `{"do":"mix","percent":[40,20,10,20,10],"draw":{"latest":1},"scan_items":10,` + hour + `}`,
			`{"do":"mix","percent":[50,0,50,0,0],"draw":{"zipfian":0.99},` + hour + `}`,
		}},
		{`{"kind":"storage_in_order","seed":31,"value_bytes":512}`, []string{`{"do":"put","count":9,"size":3}`, `{"do":"queue",` + hour + `}`}},
		{`{"kind":"storage","seed":31,"value_bytes":512}`, []string{`{"do":"put","count":9,"size":3}`, `{"do":"replace",` + hour + `}`}},
		{`{"kind":"sequential","seed":29,"value_bytes":32}`, []string{
			`{"do":"drive","pairs":90,"concurrency":1,"multi":10,` + hour + `}`, `{"do":"requests","threads":1,"keys":20,"set":90,` + hour + `}`,
			`{"do":"requests","threads":2,"keys":20,"set":90,` + hour + `}`,
		}},
		{`{"kind":"hotspots","seed":29,"value_bytes":32}`, []string{`{"do":"drive","pairs":90,"concurrency":1,"multi":10,` + hour + `}`}},
		{`{"kind":"keyspaces","seed":37,"value_bytes":128,"number":5}`, []string{
			`{"do":"load_keyspaces","count":50}`, `{"do":"commit_to_keyspaces",` + hour + `}`, `{"do":"read_keyspaces",` + hour + `}`,
			`{"do":"drop_keyspaces"}`,
		}},
	} {
		for _, loses := range []int{0, 5} {
			failures := ""
			for _, answer := range serve(t, loses, c.source, slices.Concat(c.works[:1], check, c.works[1:], check)...) {
				failures += string(answer["failure"])
			}
			if isLost := strings.Contains(failures, `"wrong"`); isLost != (loses > 0) || loses == 0 && failures != "" {
				t.Error(c.source, loses, failures)
			}
		}
	}
}
