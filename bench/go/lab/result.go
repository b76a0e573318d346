package lab

// The form of a row's details, as crates/esker-bench-api/src/results.rs describes it.

// detail describes a row that times single operations.
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

// figure sets a figure by name.
func (d *detail) figure(name string, value float64) {
	if d.Figures == nil {
		d.Figures = map[string]float64{}
	}
	d.Figures[name] = value
}
