package host

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	pprof "github.com/google/pprof/profile"

	"synclab/bench/pass"
	"synclab/bench/raw"
)

// heapURL is where a Go process with profiling serves what its heap holds.
const heapURL = "http://" + metricsAddress + "/debug/pprof/heap?gc=1"

// mostHeapBytes bounds a heap profile, which has some hundred functions.
const mostHeapBytes = 16 << 20

// SendHeap sends the heap profile of the subject, which still runs, if the assignment wants profiles. A subject without one
// is noted only.
func (r *Host) SendHeap(ctx context.Context) {
	if r.ProfileFile == "" || !r.About.HasMetrics || r.About.Own {
		return
	}
	content, bytes, err := readHeap(ctx, heapURL)
	if err != nil {
		r.Messages.Send(pass.Message{Note: "no heap profile: " + err.Error()})
		return
	}
	file := strings.TrimSuffix(r.ProfileFile, ".pb.gz") + "-heap.pb.gz"
	r.Messages.Send(pass.Message{File: file, Content: content})
	r.RecordAs(raw.Record{File: file}, raw.HeapProfile, float64(bytes))
}

// readHeap returns a profile and the bytes in use.
func readHeap(ctx context.Context, url string) (content []byte, inUse int64, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, 0, err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // no proxy of the environment
	resp, err := client.Do(req)
	if err != nil {
		return nil, 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, 0, fmt.Errorf("%s: %s", url, resp.Status)
	}
	if content, err = io.ReadAll(io.LimitReader(resp.Body, mostHeapBytes)); err != nil {
		return nil, 0, err
	}
	p, err := pprof.ParseData(content)
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w", url, err)
	}
	at := slices.IndexFunc(p.SampleType, func(t *pprof.ValueType) bool { return t.Type == raw.HeapInUse })
	if at < 0 {
		return nil, 0, fmt.Errorf("%s: no values of %s", url, raw.HeapInUse)
	}
	for _, s := range p.Sample {
		inUse += s.Value[at]
	}
	return content, inUse, nil
}
