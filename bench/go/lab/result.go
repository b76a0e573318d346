package lab

// The form of a result: what crates/esker-bench-api/src/results.rs describes, one JSON object a line.

import (
	"encoding/json"
	"fmt"
	"io"
)

type usage struct {
	PeakRssBytes       uint64  `json:"peak_rss_bytes"`
	PeakAnonBytes      uint64  `json:"peak_anon_bytes"`
	PeakFileBytes      uint64  `json:"peak_file_bytes"`
	RssAnonBytes       uint64  `json:"rss_anon_bytes"`
	RssFileBytes       uint64  `json:"rss_file_bytes"`
	DiskBytes          uint64  `json:"disk_bytes"`
	DiskAllocatedBytes uint64  `json:"disk_allocated_bytes"`
	PeakDiskBytes      uint64  `json:"peak_disk_bytes"`
	WrittenBytes       uint64  `json:"written_bytes"`
	ReadBytes          uint64  `json:"read_bytes"`
	DeviceWrittenBytes uint64  `json:"device_written_bytes"`
	DeviceReadBytes    uint64  `json:"device_read_bytes"`
	CPUSeconds         float64 `json:"cpu_s"`
}

type record struct {
	Suite   string    `json:"suite"`
	Row     string    `json:"row"`
	Engine  string    `json:"engine"`
	Version string    `json:"version"`
	Scale   string    `json:"scale"`
	Run     uint32    `json:"run"`
	Started int64     `json:"started_unix_ms"` // when the row began
	Value   *float64  `json:"value"`
	Unit    string    `json:"unit"`
	Better  string    `json:"better"`
	Ops     uint64    `json:"ops"`
	Passes  []float64 `json:"passes,omitempty"`
	usage
	Detail           *detail  `json:"detail,omitempty"`
	UserWrittenBytes uint64   `json:"user_written_bytes"`
	LiveBytes        uint64   `json:"live_bytes"`
	Commits          uint64   `json:"commits"`
	SyncsPerCommit   *float64 `json:"syncs_per_commit"`
	MemoryLimit      string   `json:"memory_limit"`
	Note             string   `json:"note,omitempty"`
	Error            string   `json:"error,omitempty"`
	Commit           string   `json:"commit"`
}

// addNote adds to what a reader of the row has to know.
func (rec *record) addNote(note string) {
	if rec.Note != "" {
		rec.Note += "; "
	}
	rec.Note += note
}

// detail of a row that looks at single operations.
type detail struct {
	Load         string               `json:"load"`
	Latency      map[string]latency   `json:"latency"`
	PeriodS      float64              `json:"period_s"`
	Series       map[string][]float64 `json:"series"`
	LongestStall float64              `json:"longest_stall_s"`
	DrainS       *float64             `json:"drain_s,omitempty"`
	Figures      map[string]float64   `json:"figures,omitempty"`
}

type latency struct {
	Count uint64  `json:"count"`
	Mean  float64 `json:"mean"`
	P50   float64 `json:"p50"`
	P90   float64 `json:"p90"`
	P95   float64 `json:"p95"`
	P99   float64 `json:"p99"`
	P999  float64 `json:"p999"`
	P9999 float64 `json:"p9999"`
	Max   float64 `json:"max"`
}

// detailOf gives the detail of a record, which has one from then on.
func (rec *record) detailOf() *detail {
	if rec.Detail == nil {
		rec.Detail = &detail{Latency: map[string]latency{}, Series: map[string][]float64{}}
	}
	return rec.Detail
}

// figure sets a figure by name.
func (d *detail) figure(name string, value float64) {
	if d.Figures == nil {
		d.Figures = map[string]float64{}
	}
	d.Figures[name] = value
}

// send writes one message for the runner.
func send(out io.Writer, message any) error {
	line, err := json.Marshal(message)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s\n", line)
	return err
}
