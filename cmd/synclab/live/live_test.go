package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"synclab/bench"
	"synclab/bench/raw"
	"synclab/reports/doc"
	"synclab/reports/records"
	"synclab/reports/reportstest"
	"synclab/reports/sections"
)

// running has two repetitions of one subject with figures, a note, and a third repetition that runs.
func running() *Server {
	s := newServer("steady-churn")
	at := bench.Progress{Subject: "synclab/nftables", Cell: "services=<100>", Rep: 1, Pass: 1, Passes: 4, Stage: "2:churn", Done: 5, Total: 10}
	s.Show(at)
	for _, median := range []float64{0.002, 0.0035} {
		ended := at
		ended.Figures = []bench.Figure{{Metric: raw.Reaction, Name: "reaction", Median: median}}
		s.Show(ended)
		at.Pass, at.Rep, at.Left = at.Pass+1, at.Rep+1, time.Hour
	}
	s.Show(at)
	at.Note = "sync failed: <b>"
	s.Show(at)
	return s
}

func get(t *testing.T, s *Server, target, host string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, target, nil)
	r.Host = host
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	return w
}

// The page and the metrics show the same state, and names cannot become markup.
func TestPageAndMetrics(t *testing.T) {
	s := running()
	page := get(t, s, "/", "127.0.0.1:80").Body.String()
	for _, want := range []string{"steady-churn", "synclab/nftables", "services=&lt;100&gt;", "3 of 4", "2:churn, 5 of 10", "about 1h0m left", "3.50\u00a0ms", `<svg class="spark"`, "sync failed: &lt;b&gt;"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	metrics := get(t, s, metricsPath, "[::1]").Body.String()
	for _, want := range []string{`synclab_run_figure_seconds{cell="services=<100>",figure="reaction",subject="synclab/nftables"} 0.0035` + "\n",
		`synclab_run_figure_repetitions_total{cell="services=<100>",subject="synclab/nftables"} 2` + "\n", "synclab_run_repetitions 4\n", "synclab_run_repetitions_ended 2\n",
		"synclab_run_progress_ratio 0.625\n", `synclab_run_step_info{cell="services=<100>",step="2:churn",subject="synclab/nftables"} 1` + "\n", "synclab_run_step_ratio 0.5\n",
		"synclab_run_notes_total 1\n", "synclab_run_time_left_seconds 35", "process_cpu_seconds_total "} {
		if !strings.Contains(metrics, want) {
			t.Errorf("the metrics lack %q:\n%s", want, metrics)
		}
	}
}

func TestAccess(t *testing.T) {
	page, err := running().page()
	if err != nil {
		t.Fatal(err)
	}
	reportstest.CheckAccess(t, page)
}

// What is unknown is absent: before the first repetition, and in a run until a precision.
func TestUnknownIsAbsent(t *testing.T) {
	s := newServer("x")
	for range 2 {
		metrics := get(t, s, metricsPath, "localhost").Body.String()
		for _, absent := range []string{"synclab_run_repetitions ", "synclab_run_progress_ratio ", "synclab_run_time_left_seconds ", "synclab_run_step_ratio "} {
			if strings.Contains(metrics, absent) {
				t.Errorf("%s is there:\n%s", absent, metrics)
			}
		}
		s.Show(bench.Progress{Subject: "exec:\xff", Cell: "services=1", Rep: 1, Pass: 1, Stage: "1:settle"})
	}
	if page := get(t, s, "/", "localhost").Body.String(); !strings.Contains(page, "number 1") || !strings.Contains(page, "No repetition has ended yet") {
		t.Errorf("the page: %s", page)
	}
}

// Other web pages cannot read anything, not even by a name that leads here.
func TestGuard(t *testing.T) {
	s := running()
	for _, path := range []string{"/", eventsPath, metricsPath} {
		if w := get(t, s, path, "example.com"); w.Code != http.StatusForbidden || strings.Contains(w.Body.String(), "nftables") {
			t.Errorf("%s of another host: %d %s", path, w.Code, w.Body)
		}
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, path, strings.NewReader("x"))
		r.Host = "127.0.0.1"
		if s.handler.ServeHTTP(w, r); w.Code != http.StatusMethodNotAllowed {
			t.Errorf("POST %s: %d", path, w.Code)
		}
	}
	head := get(t, s, "/", "127.0.0.1").Header()
	if policy := head.Get("Content-Security-Policy"); !strings.HasPrefix(policy, "default-src 'none';") || head.Get("Access-Control-Allow-Origin") != "" || head.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("headers: %v", head)
	}
}

// Strangers cannot keep the owner out: with idle connections, or with streams that they do not read, they only end their
// older ones.
func TestManyClients(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := Start(l, "x")
	defer s.Close()
	var idle []net.Conn
	for range 3 * limits.Connections {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		idle = append(idle, conn)
	}
	for range 2 * mostStreams {
		answer, err := http.Get(s.URL() + strings.TrimPrefix(eventsPath, "/"))
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			t.Errorf("a stream: %s", answer.Status)
		}
	}
	answer, err := http.Get(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Errorf("the page: %s", answer.Status)
	}
	if _, err := idle[0].Read(make([]byte, 1)); err == nil {
		t.Error("the oldest connection got an answer")
	}
	s.streams.mu.Lock()
	defer s.streams.mu.Unlock()
	if n := len(s.streams.open); n > mostStreams {
		t.Errorf("%d streams", n)
	}
}

// read returns the names and the sections of a stream's events.
func read(t *testing.T, stream string) (names, pages []string) {
	t.Helper()
	for _, event := range strings.Split(strings.TrimSuffix(stream, "\n\n"), "\n\n") {
		head, data, found := strings.Cut(event, "\ndata: ")
		var page string
		if err := json.Unmarshal([]byte(data), &page); err != nil || !found {
			t.Fatalf("%q: %v", event, err)
		}
		names, pages = append(names, strings.TrimPrefix(head, "event: ")), append(pages, page)
	}
	return names, pages
}

// A stream has at most two events a second, however many changes there are, none is lost, and the last one has the end.
func TestStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer("x")
		ctx, cancel := context.WithCancel(t.Context())
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, eventsPath, nil).WithContext(ctx)
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.serveEvents(w, r)
		}()
		const changes = 1000
		for i := range changes { // ten seconds
			s.Show(bench.Progress{Subject: "a", Cell: "c", Rep: 1, Pass: 1, Passes: 1, Stage: "1:churn", Done: i + 1, Total: changes})
			time.Sleep(10 * time.Millisecond)
		}
		synctest.Wait()
		s.Done(&sections.Summary{Verdict: []doc.Line{{Level: doc.Good, Text: "as fast as ever"}}, Runs: []records.RunHead{{Dir: "runs-1"}}})
		cancel()
		<-done
		names, pages := read(t, w.Body.String())
		if n := len(names); n < 10 || n > 22 || names[n-2] != "message" || names[n-1] != "end" {
			t.Errorf("%d events of ten seconds: %q", n, names)
		}
		if last := pages[len(pages)-1]; !strings.Contains(last, "1000 of 1000") || !strings.Contains(last, "as fast as ever") || !strings.Contains(last, "runs-1") {
			t.Errorf("the last event: %s", last)
		}
	})
}

// Without changes a stream goes on, so that the times do.
func TestIdleStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		w := httptest.NewRecorder()
		newServer("x").serveEvents(w, httptest.NewRequest(http.MethodGet, eventsPath, nil).WithContext(ctx))
		names, pages := read(t, w.Body.String())
		if n := len(names); n < 10 || n > 14 || !strings.Contains(pages[n-1], "1m0s so far") {
			t.Errorf("%d events in a minute: %s", n, pages[n-1])
		}
	})
}

// Close ends open streams with the last state, and the listener.
func TestClose(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := Start(l, "x")
	answer, err := http.Get(s.URL() + strings.TrimPrefix(eventsPath, "/"))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(answer.Body)
	if names, _ := read(t, string(text)); err != nil || names[len(names)-1] != "end" || answer.Header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("%v, %v", err, names)
	}
	if _, err := http.Get(s.URL()); err == nil {
		t.Error("it still answers")
	}
	var op *net.OpError
	if _, err := l.Accept(); !errors.As(err, &op) {
		t.Errorf("the listener: %v", err)
	}
}

// The page's script replaces the sections that an event has changed.
func TestScript(t *testing.T) {
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip(err)
	}
	s := newServer("steady-churn")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == eventsPath { // the state changes after the page, and the run ends
			s.Show(bench.Progress{Subject: "a", Cell: "c", Rep: 1, Pass: 1, Passes: 2, Figures: []bench.Figure{{Metric: raw.Reaction, Name: "reaction", Median: 0.002}}})
			ended, cancel := context.WithCancel(r.Context())
			cancel()
			r = r.WithContext(ended)
		}
		s.handler.ServeHTTP(w, r)
	}))
	defer server.Close()
	dom, err := exec.Command(browser, "--headless", "--no-sandbox", "--disable-gpu", "--user-data-dir="+filepath.Join(t.TempDir(), "profile"), "--virtual-time-budget=10000", "--dump-dom", server.URL).Output()
	if err != nil {
		t.Fatal(err)
	}
	text := string(dom)
	if strings.Contains(text, "No repetition has ended yet") || !strings.Contains(text, "2.00&nbsp;ms") || !strings.Contains(text, ">The run has ended.<") {
		t.Errorf("the page after the event: %s", text)
	}
	if ids := regexp.MustCompile(`<section id="([a-z]+)"`).FindAllStringSubmatch(text, -1); fmt.Sprint(ids) != fmt.Sprint([][]string{{`<section id="now"`, "now"}, {`<section id="latest"`, "latest"}, {`<section id="notes"`, "notes"}}) {
		t.Errorf("sections: %v", ids)
	}
}

// BenchmarkSections is what an event costs the process that serves.
func BenchmarkSections(b *testing.B) {
	s := running()
	for i := range 40 {
		s.Show(bench.Progress{Subject: "a", Cell: fmt.Sprint(i), Pass: 5, Figures: []bench.Figure{{Metric: raw.Reaction, Name: "reaction", Median: 1}, {Metric: raw.FullSync, Name: "full sync", Median: 1}}})
	}
	for b.Loop() {
		if _, _, err := s.sections(); err != nil {
			b.Fatal(err)
		}
	}
}
