package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	corev1 "k8s.io/api/core/v1"

	"synclab/bench/raw"
	"synclab/bench/subject"
	"synclab/proxier/metrics"
)

// dashboard has the fields of Grafana's JSON that the test needs.
type dashboard struct {
	Templating struct {
		List []struct{ Name, Type, Query string }
	}
	Panels []struct {
		ID          int
		Type, Title string
		GridPos     struct{ X, Y, W, H int }
		Targets     []struct{ Expr string }
	}
}

// queries are all queries of deploy/grafana.json, by the panel or variable, as Grafana would send them.
func queries(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(deployFolder, "grafana.json"))
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for _, v := range d.Templating.List {
		if m := regexp.MustCompile(`^label_values\((\w+), \w+\)$`).FindStringSubmatch(v.Query); m != nil {
			all["variable "+v.Name] = []string{m[1]}
		} else if v.Type != "datasource" {
			t.Errorf("variable %s: query %q", v.Name, v.Query)
		}
	}
	asked := strings.NewReplacer("$__rate_interval", "1m", "$figure", ".*")
	ids := map[int]bool{}
	for _, p := range d.Panels {
		if ids[p.ID] || p.GridPos.X+p.GridPos.W > 24 || (p.Type == "row") != (len(p.Targets) == 0) {
			t.Errorf("panel %d %q: id, width or queries", p.ID, p.Title)
		}
		ids[p.ID] = true
		for _, target := range p.Targets {
			all["panel "+p.Title] = append(all["panel "+p.Title], asked.Replace(target.Expr))
		}
	}
	if len(all) < 10 {
		t.Errorf("%d panels with queries", len(all))
	}
	return all
}

// startRun starts `synclab run --listen` with more repetitions than the test needs, and returns the page's address.
func startRun(t *testing.T) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	stderr, in := io.Pipe()
	var said strings.Builder
	lines := bufio.NewScanner(io.TeeReader(stderr, &said))
	status := make(chan int, 1)
	out := filepath.Join(t.TempDir(), "run")
	go func() {
		s := streams{strings.NewReader(""), io.Discard, in}
		err := run(ctx, s, []string{"run", "cold-start", "--services", "10", "--subjects", subject.DefaultSubjects()[0], "--reps", "100000",
			"--listen", "127.0.0.1:0", "--out", out})
		status <- exitStatus(ctx, in, err)
		in.Close()
	}()
	for lines.Scan() {
		if page, found := strings.CutPrefix(lines.Text(), "live page: "); found {
			drained := make(chan struct{})
			go func() {
				defer close(drained)
				for lines.Scan() {
				}
			}()
			t.Cleanup(func() {
				cancel()
				<-drained
				if code := <-status; code != exitInterrupted {
					t.Errorf("the run: status %d\n%s", code, &said)
				}
			})
			return page
		}
	}
	cancel()
	if strings.Contains(said.String(), "not available") && os.Getenv("SYNCLAB_REQUIRE_NAMESPACE") == "" {
		t.Skip(&said)
	}
	t.Fatalf("no live page: %s", &said)
	return ""
}

// startPrometheus scrapes targets, "job address", each second, and returns the address of its API.
func startPrometheus(t *testing.T, program string, targets ...string) string {
	t.Helper()
	dir := t.TempDir()
	config := "global: {scrape_interval: 1s, scrape_timeout: 1s}\nscrape_configs:\n"
	for _, target := range targets {
		job, address, _ := strings.Cut(target, " ")
		config += fmt.Sprintf("- {job_name: %s, static_configs: [{targets: [%q]}]}\n", job, address)
	}
	file := filepath.Join(dir, "prometheus.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address=127.0.0.1:0")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	stderr, in := io.Pipe()
	cmd.Stderr = in
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait()
		in.Close()
	}()
	var said strings.Builder
	lines := bufio.NewScanner(io.TeeReader(stderr, &said))
	listening := regexp.MustCompile(`msg="Listening on" address=(\S+)`)
	for address, ready := "", false; lines.Scan(); { // the two lines come in either order
		if m := listening.FindStringSubmatch(lines.Text()); m != nil {
			address = m[1]
		}
		ready = ready || strings.Contains(lines.Text(), "Server is ready to receive web requests")
		if ready && address != "" {
			go func() {
				for lines.Scan() {
				}
			}()
			t.Cleanup(func() {
				_ = cmd.Cancel()
				<-ended
			})
			return "http://" + address
		}
	}
	t.Fatalf("Prometheus ended: %s", &said)
	return ""
}

// answers reports whether a query has a value that is a number.
func answers(t *testing.T, api, query string) bool {
	t.Helper()
	answer, err := http.Get(api + "/api/v1/query?query=" + url.QueryEscape(query))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var body struct {
		Status, Error string
		Data          struct{ Result []struct{ Value [2]any } }
	}
	if err := json.NewDecoder(answer.Body).Decode(&body); err != nil || body.Status != "success" {
		t.Fatalf("%s: %v %s", query, err, body.Error)
	}
	for _, r := range body.Data.Result {
		if r.Value[1] != "NaN" {
			return true
		}
	}
	return false
}

// Each query of the dashboard has an answer in a real Prometheus, which scrapes a run, a proxier's metrics and the
// exported report of a run.
func TestDashboard(t *testing.T) {
	skipShort(t)
	asked := queries(t)
	program, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip(err)
	}
	registry := prometheus.NewRegistry()
	proxier, err := metrics.New(metrics.Options{Registerer: registry})
	if err != nil {
		t.Fatal(err)
	}
	scrape := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // syncs between the scrapes
		family := proxier.For(corev1.IPv4Protocol)
		family.Synced(true, time.Second)
		family.Synced(false, time.Millisecond)
		family.Programmed(time.Second)
		family.Rules("nat", 100, 10)
		scrape.ServeHTTP(w, r)
	}))
	defer proxy.Close()

	var measured []raw.Record
	for metric, unit := range map[raw.Metric]string{raw.FullSync: "s", raw.Reaction: "s", raw.NetworkProgrammingLatency: "s", raw.PeakRSS: "B"} {
		measured = append(measured, raw.Record{Scenario: "cold-start", Subject: "synclab/nftables", Services: 10, Rep: 1, Step: "2:react", Metric: metric, Value: 0.5, Unit: unit})
	}
	status, text, stderr := invoke(t, "report", "--no-png", "-o", "openmetrics", runWith(t, measured...))
	if status != exitDone {
		t.Fatal(stderr)
	}
	rounds := make(chan struct{}) // of scrapes
	report := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/openmetrics-text; version=1.0.0; charset=utf-8")
		_, _ = io.WriteString(w, text)
		select {
		case rounds <- struct{}{}:
		default:
		}
	}))
	defer report.Close()

	address := func(page string) string { return strings.Trim(strings.TrimPrefix(page, "http://"), "/") }
	api := startPrometheus(t, program, "run "+address(startRun(t)), "proxy "+address(proxy.URL), "report "+address(report.URL))
	const most = 120 // rounds
	round := 0
	for name, all := range asked {
		for _, query := range all {
			for !answers(t, api, query) {
				if round++; round > most {
					t.Fatalf("%s: %s: no answer after %d scrapes", name, query, most)
				}
				<-rounds
			}
		}
	}
	t.Logf("%d panels and variables have answers after %d scrapes", len(asked), round)
	if answers(t, api, "synclab_no_such_metric") {
		t.Error("a metric that does not exist has an answer")
	}
}

// A live page that other machines could reach must be asked for.
func TestListenRefusesOtherAddresses(t *testing.T) {
	for _, command := range []string{"run", "compare"} {
		for _, listen := range []string{"0.0.0.0:0", ":8080", "8080", ""} {
			if status, _, stderr := invoke(t, command, "--listen", listen, "--services", "1"); status != exitUsage || !strings.Contains(stderr, "--listen") {
				t.Errorf("%s --listen %q: status %d, %s", command, listen, status, stderr)
			}
		}
	}
}
