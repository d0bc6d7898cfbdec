package raw

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/perf/benchfmt"
	"golang.org/x/sys/unix"

	"synclab/bench/lab/netns"
)

func testRun() Run {
	return Run{
		ID: "r1", Started: time.Unix(1000, 0).UTC(), Subjects: []string{"synclab/iptables-legacy"}, Seed: 7,
		Versions: Versions{Go: "go1.26 linux/amd64", Kernel: "6.18"}, Machine: Machine{CPU: "a CPU"},
	}
}

func testRecords() []Record {
	base := Record{
		Scenario: "steady-churn", Subject: "synclab/iptables-legacy", Services: 1000, Endpoints: 10,
		Params: map[string]string{"proxy.minSyncPeriod": "1s"}, Rep: 1, Sync: 1, Kind: "full", Family: "IPv4",
	}
	with := func(metric Metric, value float64, unit string, change func(*Record)) Record {
		r := base
		r.Metric, r.Value, r.Unit = metric, value, unit
		if change != nil {
			change(&r)
		}
		return r
	}
	first := 1
	return []Record{
		with(FullSync, 0.35, "s", nil),
		with(Plan, 0.02, "s", nil),
		with(Rules, 100, "count", func(r *Record) { r.Table = "nat" }),
		with(Rules, 5, "count", func(r *Record) { r.Table = "filter" }),
		with(PartialSync, 0.5, "s", func(r *Record) { r.Sync, r.Error = 2, "iptables-restore: killed" }),
		with(NetworkProgrammingLatency, 1.5, "s", nil),
		with(FirstPacket, 3.1e-6, "s", func(r *Record) { r.Sync, r.Position = 0, &first }),
	}
}

func TestRunIsReadAsWritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	w, err := OpenRun(dir, testRun(), false)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(testRecords()...); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(StatusComplete, ""); err != nil {
		t.Fatal(err)
	}
	run, records, err := ReadRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	if run.Status != StatusComplete || run.Finished == nil || run.Seed != 7 {
		t.Errorf("run.json: %+v", run)
	}
	if diff := cmp.Diff(testRecords(), records); diff != "" {
		t.Errorf("records (-written +read):\n%s", diff)
	}
}

// Records are in the file within a second, without Close. An incomplete line is skipped.
func TestInterruptedRunKeepsItsRecords(t *testing.T) {
	dir := t.TempDir()
	w, err := OpenRun(dir, testRun(), false)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Write(testRecords()...), w.Flush()); err != nil {
		t.Fatal(err)
	}
	if swept, err := SweepRuns(filepath.Dir(dir)); err != nil || len(swept) != 0 {
		t.Errorf("SweepRuns of a living run = %v, %v; want nothing", swept, err)
	}
	w.reserve.Close() // as after a kill: the lock is released
	appendTo(t, filepath.Join(dir, RecordsFile), `{"at":1,"scenario":"ste`)
	swept, err := SweepRuns(filepath.Dir(dir))
	if err != nil || len(swept) != 1 || swept[0] != dir {
		t.Errorf("SweepRuns = %v, %v; want %s", swept, err, dir)
	}
	run, records, err := ReadRun(dir)
	if err != nil || run.Status != StatusInterrupted || len(records) != len(testRecords()) {
		t.Errorf("ReadRun: status %q, %d records, %v; want interrupted and all %d",
			run.Status, len(records), err, len(testRecords()))
	}
}

// Foreign files beside a run are not waited for, not written to, and cause no failure.
func TestSweepRunsLeavesStrangersAlone(t *testing.T) {
	root := t.TempDir()
	victim := filepath.Join(root, "victim")
	killed := func(name string) string { // a killed run, with links in place of its files
		dir := filepath.Join(root, name)
		w, err := OpenRun(dir, testRun(), false)
		if err != nil {
			t.Fatal(err)
		}
		w.reserve.Close()
		if err := errors.Join(os.Symlink(victim, filepath.Join(dir, benchFile)), os.Symlink(victim, filepath.Join(dir, "."+RunFile))); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	own, anybodys, linked := killed("own"), killed("anybodys"), killed("linked")
	fifo, device := filepath.Join(root, "fifo"), filepath.Join(root, "device")
	if err := errors.Join(os.WriteFile(victim, []byte("secret"), 0o600), os.Chmod(anybodys, 0o777),
		os.Rename(linked, filepath.Join(t.TempDir(), "elsewhere")), os.Symlink(anybodys, linked),
		os.Mkdir(fifo, 0o755), unix.Mkfifo(filepath.Join(fifo, RunFile), 0o666),
		os.Mkdir(device, 0o755), os.Symlink("/dev/zero", filepath.Join(device, RunFile))); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 && !netns.InUserNamespace() { // elsewhere there is one user only
		if err := os.Chown(killed("strangers"), 65534, 65534); err != nil {
			t.Fatal(err)
		}
	}
	// Other users may lock what they can read.
	reader, err := os.Open(filepath.Join(own, RecordsFile))
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if stat, err := os.Stat(filepath.Join(own, ReserveFile)); err != nil || stat.Mode().Perm() != 0o600 {
		t.Errorf("the reserve, whose lock marks a running run: %v, %v", stat, err)
	}
	left := filepath.Join(own, "synclab-tmp-1")
	if err := errors.Join(unix.Flock(int(reader.Fd()), unix.LOCK_SH), os.WriteFile(left, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	swept, err := SweepRuns(root)
	if _, statErr := os.Stat(left); statErr == nil {
		t.Error("the draft of a killed process is still there")
	}
	if err != nil || len(swept) != 1 || swept[0] != own {
		t.Errorf("swept %q, %v; want %s", swept, err, own)
	}
	if text, err := os.ReadFile(victim); err != nil || string(text) != "secret" {
		t.Errorf("the target of the links: %q, %v", text, err)
	}
	if run, err := ReadRunFile(anybodys); err != nil || run.Status != StatusRunning {
		t.Errorf("a folder that other users may write to: %s, %v", run.Status, err)
	}
	if err := os.Chmod(root, 0o777); err != nil {
		t.Fatal(err)
	}
	if swept, err := SweepRuns(root); err != nil || len(swept) != 0 {
		t.Errorf("below a folder that other users may write to: %q, %v", swept, err)
	}
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

func TestBadLineIsNamed(t *testing.T) {
	dir := t.TempDir()
	w, err := OpenRun(dir, testRun(), false)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Write(testRecords()[:2]...), w.Flush()); err != nil {
		t.Fatal(err)
	}
	appendTo(t, filepath.Join(dir, RecordsFile), "nonsense\n{\"at\":1}\n")
	_, records, err := ReadRun(dir)
	if want := RecordsFile + ":3:"; err == nil || !strings.Contains(err.Error(), want) || len(records) != 2 {
		t.Errorf("ReadRun = %d records, %v; want 2 and an error at %s", len(records), err, want)
	}
	if err := os.WriteFile(filepath.Join(dir, RunFile), []byte("{\n\"id\": 3\n}"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err := ReadRun(dir); err == nil || !strings.Contains(err.Error(), RunFile+":2:") {
		t.Errorf("ReadRun = %v; want an error at %s:2", err, RunFile)
	}
}

func TestOpenRunRefuses(t *testing.T) {
	foreign := t.TempDir()
	if err := os.WriteFile(filepath.Join(foreign, "thesis.txt"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	living, dead := t.TempDir(), t.TempDir()
	w, err := OpenRun(living, testRun(), false)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close(StatusComplete, "")
	gone, err := OpenRun(dead, testRun(), false)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(gone.Write(testRecords()...), gone.Close(StatusComplete, "")); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, dir string
		force     bool
		want      string
	}{
		{"not a run", foreign, false, "not a run"},
		{"not a run, force", foreign, true, "not a run"},
		{"a run", dead, false, "already has a run"},
		{"a living run, force", living, true, "still running"},
		{"a run, force", dead, true, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			w, err := OpenRun(test.dir, testRun(), test.force)
			if err == nil {
				defer w.Close(StatusComplete, "")
			}
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
	if _, records, err := ReadRun(dead); err != nil || len(records) != 0 {
		t.Errorf("a replaced run has %d records, %v; want none", len(records), err)
	}
}

func TestWriteBench(t *testing.T) {
	var out bytes.Buffer
	err := WriteBench(&out, testRun(), func(yield func(Record, error) bool) {
		for _, r := range testRecords() {
			if !yield(r, nil) {
				return
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	const cell = "scenario=steady-churn/subject=synclab-iptables-legacy/services=1000/endpoints=10/proxy.minSyncPeriod=1s/family=IPv4"
	want := `goos: linux
goarch: amd64
cpu: a CPU
kernel: 6.18
go: go1.26 linux/amd64
run: r1
seed: 7

BenchmarkFullSync/` + cell + ` 1 3.5e+08 ns/op 2e+07 plan-ns/op 105 rules
BenchmarkNetworkProgrammingLatency/` + cell + ` 1 1.5e+09 ns/op
BenchmarkFirstPacket/` + cell + `/position=1 1 3100 ns/op
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("bench.txt (-want +got):\n%s", diff)
	}
	var units []string
	reader := benchfmt.NewReader(&out, "bench.txt")
	for reader.Scan() {
		switch result := reader.Result().(type) {
		case *benchfmt.Result:
			units = append(units, fmt.Sprint(len(result.Values)))
		case error:
			t.Errorf("benchfmt: %v", result)
		}
	}
	if err := reader.Err(); err != nil && !errors.Is(err, io.EOF) || len(units) != 3 {
		t.Errorf("benchfmt read %d results, %v; want 3", len(units), err)
	}
}
