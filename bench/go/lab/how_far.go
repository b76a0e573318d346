package lab

// Tells the runner how far a long step has come, so that a time-out can say it: crates/esker-bench/src/how_far.rs in Go.

import (
	"fmt"
	"io"
	"time"
)

const tellEvery = time.Second

type howFar struct {
	out  io.Writer
	what string
	all  uint64
	told time.Time
}

// howFar is the progress of a step that makes all of what.
func (r *Recorder) howFar(what string, all uint64) *howFar {
	return &howFar{r.out, what, all, time.Now()}
}

// at says at a time how many are done. It tells no more than once in a while, and once more at the end.
func (h *howFar) at(done uint64, now time.Time) error {
	if h == nil || done < h.all && now.Sub(h.told) < tellEvery {
		return nil
	}
	h.told = now
	return send(h.out, map[string]string{"progress": fmt.Sprintf("%d of %d %s written", done, h.all, h.what)})
}
