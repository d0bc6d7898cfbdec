package main

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"synclab/bench/machine"
	"synclab/bench/raw"
	"synclab/cmd/synclab/planning"
	"synclab/reports/capacity"
	"synclab/reports/capacity/capacitytest"
	"synclab/reports/capacity/page"
	"synclab/reports/model"
)

// calibratedHere writes a model of known costs into the runs of a new working folder, as if it had been made on this
// machine.
func calibratedHere(t *testing.T) (dir string) {
	t.Helper()
	t.Chdir(t.TempDir())
	m := *capacitytest.Model()
	m.Versions, m.Machine = machine.DetectVersions(t.Context()), machine.DetectMachine()
	dir = filepath.Join(raw.RunsFolder, "calibrate-1")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := m.Write(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// A plan finds the model, answers in words and in a table, and writes a folder with everything.
func TestPlan(t *testing.T) {
	dir := calibratedHere(t)
	args := []string{"plan", "--services", "2000", "--endpoints", "5", "--churn", "5", "--nodes", "50", "--grow", "services=2x",
		"--subjects", "synclab/nftables,kube-proxy/iptables-legacy", "--today", "kube-proxy/iptables-legacy", "--npl-p99", "4s", "--length", "5m", "--no-png", "--out", "mine"}
	status, stdout, stderr := invoke(t, args...)
	if status != exitDone {
		t.Fatalf("status %d\n%s%s", status, stdout, stderr)
	}
	html := filepath.Join("mine", page.CapacityPage)
	for _, part := range []string{"subject ", "violated first", "memory limit", "\nkube-proxy/iptables-legacy  ", "\nsynclab/nftables  ", "\npage: " + html} {
		if !strings.Contains(stdout, part) {
			t.Errorf("stdout lacks %q:\n%s", part, stdout)
		}
	}
	for _, part := range []string{"cost model: " + dir, "in use today: kube-proxy/iptables-legacy; compared: kube-proxy/iptables-legacy, synclab/nftables", "[1/"} {
		if !strings.Contains(stderr, part) {
			t.Errorf("stderr lacks %q:\n%s", part, stderr)
		}
	}
	a, err := page.LoadAnswer("mine")
	if err != nil {
		t.Fatal(err)
	}
	q := a.Question
	if q.Today.Services != 2000 || q.Today.Endpoints != 5 || q.Today.Nodes != 50 || q.Today.Churn.Endpoints != 5 || q.Growth != (capacity.Growth{Services: 2}) ||
		q.SLOs.ProgrammingP99 != 4*time.Second || q.SLOs.CPU != 0.5 || q.Subjects[0] != "kube-proxy/iptables-legacy" || a.Target.Services != 4000 || a.Model.Run == "" {
		t.Errorf("the answer's question is %+v, its target %+v", q, a.Target)
	}
	pages, err := os.ReadFile(filepath.Join("mine", "capacity.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, answer, _ := strings.Cut(string(pages), "\n- ")
	answer, _, _ = strings.Cut(answer, "\n")
	answer = strings.Trim(answer, "* ")
	if before, _, found := strings.Cut(strings.Join(strings.Fields(stdout), " "), answer); !found || strings.Contains(before, ".") {
		t.Errorf("the page's answer %q does not come first:\n%s", answer, stdout)
	}
	if _, err := os.Stat(html); err != nil {
		t.Error(err)
	}

	// Its html is made again from the answer in its folder.
	if err := os.Remove(html); err != nil {
		t.Fatal(err)
	}
	status, again, stderr := invoke(t, "report", "mine", "--no-png")
	if status != exitDone || again != stdout {
		t.Errorf("report: status %d, %s\n%s", status, stderr, again)
	}
	if _, err := os.Stat(html); err != nil {
		t.Error(err)
	}

	// The copy of the model in a plan's folder is no calibration.
	if err := os.Rename("mine", filepath.Join(raw.RunsFolder, "plan-1")); err != nil {
		t.Fatal(err)
	}
	here := model.Here{Versions: machine.DetectVersions(t.Context()), Machine: machine.DetectMachine()}
	if newest, err := newestModel(raw.RunsFolder, here); err != nil || newest != dir {
		t.Errorf("the newest model is in %s, %v", newest, err)
	}
}

// As JSON, the output is the answer and nothing else. It has the numbers of a dump and their sources. A folder with a
// plan is not overwritten.
func TestPlanOfADump(t *testing.T) {
	dir := calibratedHere(t)
	dump := dumped(t, plannedCluster(t))
	args := []string{"plan", "-f", dump, "--churn", "0.5", "--model", dir, "--subjects", "synclab/nftables", "--length", "5m", "--no-png", "-o", "json", "--out", "mine"}
	status, stdout, stderr := invoke(t, args...)
	if status != exitDone {
		t.Fatalf("status %d\n%s%s", status, stdout, stderr)
	}
	var a capacity.Answer
	if err := json.Unmarshal([]byte(stdout), &a); err != nil {
		t.Fatalf("%v\n%s", err, stdout)
	}
	note := "from " + dump + ": 40 Services, 3 endpoints each, 4 nodes; 1 headless or external Services are not counted"
	if a.Question.Today.Services != 40 || a.Target != nil || !a.Defaulted || !slices.Contains(a.Remarks, note) || !strings.Contains(stderr, note) {
		t.Errorf("%+v\n%s", a.Question, stderr)
	}
	if status, _, stderr := invoke(t, args...); status != exitUsage || !strings.Contains(stderr, "mine has a plan already; replace it with --force") {
		t.Errorf("over a plan: status %d, %s", status, stderr)
	}
}

// The check fails if the subject in use violates an SLO by the median.
func TestPlanCheck(t *testing.T) {
	dir := calibratedHere(t)
	args := []string{"plan", "--model", dir, "--services", "500", "--endpoints", "4", "--churn", "1", "--length", "5m", "--no-png", "--check", "--npl-p99", "0", "--cpu", "0", "--first-sync", "0"}
	status, _, stderr := invoke(t, append(args, "--subjects", "synclab/nftables,kube-proxy/nftables", "--memory", "4Gi")...)
	if status != exitDone {
		t.Errorf("SLOs met: status %d, %s", status, stderr)
	}
	status, stdout, stderr := invoke(t, append(args, "--subjects", "kube-proxy/nftables,synclab/nftables", "--memory", "8Mi")...)
	if status != exitFailed || !strings.Contains(stderr, "synclab: kube-proxy/nftables, today: SLOs are violated: memory is ") || !strings.Contains(stdout, "page: ") {
		t.Errorf("SLOs violated: status %d, %s\n%s", status, stderr, stdout)
	}
}

// The table counts the growing quantity, and its head names the quantity unless it is Services.
func TestPlanTable(t *testing.T) {
	reach := func(median, low, high float64) capacity.Limit {
		return capacity.Limit{SLO: capacity.CPU, Size: capacity.Estimate{Median: median, Low: low, High: high}}
	}
	unbounded, smaller := reach(1234, 0, 0), reach(0.123, 0, 0)
	unbounded.Unbounded = true
	smaller.Never, smaller.Smaller = true, true
	for _, c := range []struct {
		unit  capacity.Unit
		limit capacity.Limit
		want  string
	}{
		{capacity.InServices, reach(24.3, 18.2, 12345), "SLOs met up to|24 (18 … 12,000)"},
		{capacity.InNodes, reach(24, 0, 5678), "SLOs met up to, nodes|24 (0 … 5,700)"},
		{capacity.InEndpoints, reach(24.34, 7.25, 118.4), "SLOs met up to, endpoints of each Service|24 (7.3 … 120)"},
		{capacity.InChanges, reach(0.456, 0.0612, 1000), "SLOs met up to, changes a second|0.46 (0.061 … 1,000)"},
		{capacity.InChanges, unbounded, "SLOs met up to, changes a second|≥ 1,200"},
		{capacity.InChanges, smaller, "SLOs met up to, changes a second|violated today; 0.12"},
	} {
		rows := planning.Table(&capacity.Answer{Unit: c.unit, Subjects: []capacity.SubjectAnswer{{Name: "a", Largest: c.limit, Limits: []capacity.Limit{c.limit}}}})
		if got := rows[0][1] + "|" + rows[1][1]; got != c.want || rows[1][4] != rows[1][1] {
			t.Errorf("%s, with today's settings %s; want %s", got, rows[1][4], c.want)
		}
	}
	// With today's settings, the lower bound is that of the least certain SLO.
	rows := planning.Table(&capacity.Answer{Unit: capacity.InNodes, Subjects: []capacity.SubjectAnswer{{Name: "a", Limits: []capacity.Limit{reach(50, 40, 60), reach(55, 20, 90)}}}})
	if rows[1][4] != "50 (20 … 60)" {
		t.Errorf("with today's settings %s", rows[1][4])
	}
}

// The messages of a check for SLOs that are met, violated, and uncertain.
func TestCheckSLOs(t *testing.T) {
	a := &capacity.Answer{
		Question: capacity.Question{Subjects: []string{"b"}, SLOs: capacity.SLOs{CPU: 1, Memory: 1, Start: 1}},
		Subjects: []capacity.SubjectAnswer{{Name: "a"}, {Name: "b", Today: capacity.Evaluation{Met: []string{capacity.CPU, capacity.Start},
			Quantities: map[string]capacity.Estimate{capacity.CPU: {}, capacity.Memory: {}, capacity.Start: {}}}}},
	}
	var said strings.Builder
	if err := checkSLOs(&said, a); err != nil || said.String() != "b may violate memory today: the SLO is within the interval of the estimate\n" {
		t.Errorf("%v, %q", err, said.String())
	}
	said.Reset()
	delete(a.Subjects[1].Today.Quantities, capacity.Memory)
	if err := checkSLOs(&said, a); err != nil || said.String() != "the calibration of b has no memory: these SLOs were not checked\n" {
		t.Errorf("%v, %q", err, said.String())
	}
	a.Subjects[1].Target = &capacity.Evaluation{
		Met: []string{capacity.Start}, Violated: []string{capacity.CPU, capacity.Memory},
		Quantities: map[string]capacity.Estimate{capacity.CPU: {Median: 1.25}, capacity.Memory: {Median: 3 << 20}},
	}
	want := "b, in the cluster grown by --grow: SLOs are violated: CPU is 1.25 CPUs, memory is 3.00 MiB"
	if err := checkSLOs(&said, a); err == nil || err.Error() != want {
		t.Errorf("%v; want %s", err, want)
	}
}

// Mistakes are refused before a model is searched or anything is measured.
func TestPlanRefuses(t *testing.T) {
	t.Chdir(t.TempDir())
	cluster := []string{"--services", "100", "--churn", "1"}
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "the size of the cluster today is missing"},
		{append([]string{"now"}, cluster...), `takes no argument, got "now"`},
		{append([]string{"--grow", "services=2x,pods=3x"}, cluster...), "--grow pods=3x: want one of services, endpoints, nodes, churn"},
		{[]string{"--services", "99999999", "--churn", "1"}, "--services 99999999: want 1 to 1,048,576"},
		{[]string{"--services", "abc", "--churn", "1"}, `--services "abc": want a whole number`},
		{append([]string{"--npl-p99", "5"}, cluster...), `--npl-p99 "5": want a time such as 500ms, 10s or 5m`},
		{append([]string{"--endpoints", "100000"}, cluster...), "--endpoints 100000: want 0 to 5,000"},
		{append([]string{"--grow", "services=20000x"}, cluster...), "the target: cluster of 2,000,000 Services: want at most 1,048,576"},
		{append([]string{"--memory", "12"}, cluster...), "--memory 12: that many bytes are too few for a proxier; did you mean 12Mi?"},
		{append([]string{"--memory", "12k"}, cluster...), "--memory 12k: too little for a proxier; want 4Mi or more"},
		{append([]string{"--cpu", "half"}, cluster...), `--cpu "half": want a number of CPUs`},
		{append([]string{"--min-sync-period", "-1s"}, cluster...), "--min-sync-period -1s: want 0 or more"},
		{append([]string{"--policy", "never"}, cluster...), `--policy "never": want token-bucket or completion-to-start`},
		{append([]string{"--subjects", "cilium"}, cluster...), `"cilium" is not known`},
		{append([]string{"--today", "cilium"}, cluster...), `--today: subject "cilium" is not known`},
		{append([]string{"--subjects", "synclab/nftables", "--today", "kube-proxy/nftables"}, cluster...), "--today kube-proxy/nftables is not among --subjects"},
		{append([]string{"--budget", "0s"}, cluster...), "--budget 0s: want more than 0"},
		{append([]string{"--within", "-1s"}, cluster...), "--within -1s: want more than 0"},
		{append([]string{"--length", "0s"}, cluster...), "--length 0s: want more than 0"},
		{append([]string{"--force"}, cluster...), "--force replaces the plan in --out, which is not given"},
		{append([]string{"--model", "nowhere"}, cluster...), "cost model: open nowhere"},
		{[]string{"-f", "none.yaml", "--churn", "1"}, "none.yaml"},
	} {
		status, stdout, stderr := invoke(t, append([]string{"plan"}, c.args...)...)
		if status != exitUsage || stdout != "" || !strings.Contains(stderr, c.want) {
			t.Errorf("%q: status %d, %s; want %s", c.args, status, stderr, c.want)
		}
	}
}

// Remarks name subjects with little data and subjects without data.
func TestThinModels(t *testing.T) {
	few := model.Term{Quantity: model.Total, Kind: model.Full, Points: 2, Score: 0.7}
	enough := model.Term{Quantity: model.Total, Kind: model.Partial, Points: 9, Score: 0.1}
	m := &model.Model{Subjects: []*model.Subject{{Name: "a", Terms: []model.Term{few}}, {Name: "b", Terms: []model.Term{enough}}, {Name: "c", Terms: []model.Term{few}}}}
	want := []string{"a: the fit of its full syncs has 2 points, and an error of 70 % at sizes excluded from the fit: calibrate longer, on an idle machine"}
	if got := thin(m, []string{"a", "b"}, true); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	got := thin(m, []string{"a", "b"}, false)
	if !slices.Contains(got, "synclab/nftables is not in the cost model: 'synclab calibrate' measures it, if the budget is large enough") {
		t.Errorf("%q", got)
	}
}

// A plan is for the subject in use, or fails. It is never for another measured subject.
func TestAnsweredSubjects(t *testing.T) {
	law := func(kind string, points int, smallest, score float64) model.Term {
		return model.Term{Quantity: model.Total, Kind: kind, Points: points, Score: score, Smallest: model.Range{Services: smallest}, Largest: model.Range{Services: 4000}}
	}
	subject := func(name string, terms ...model.Term) *model.Subject { return &model.Subject{Name: name, Terms: terms} }
	full := law(model.Full, 5, 250, 0.1)
	m := &model.Model{Asked: []string{"gone", "whole", "other"}, Subjects: []*model.Subject{
		subject("full only", full), subject("guessed", full, law(model.Partial, 9, 250, 0.7)), subject("one size", full, law(model.Partial, 9, 4000, 0.1)),
		subject("other", full, law(model.Partial, 9, 250, 0.1)), subject("whole", full, law(model.Partial, 9, 250, 0.1)),
	}}
	for name, want := range map[string]string{"": "gone, which is in use today: it was not measured", "full only": "no cost model of its partial syncs",
		"guessed": "errs by a factor of two", "one size": "at one size only", "whole,gone": "gone, which was chosen"} {
		needed := slices.DeleteFunc(strings.Split(name, ","), func(s string) bool { return s == "" })
		if subjects, _, err := answered(m, "runs/c", needed, name != ""); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "synclab calibrate --subjects ") || exitStatus(t.Context(), io.Discard, err) != exitUsage {
			t.Errorf("%q: %q, %v; want %s", name, subjects, err, want)
		}
	}
	subjects, remarks, err := answered(m, "runs/c", []string{"whole"}, false)
	if err != nil || !slices.Equal(subjects, []string{"whole", "other"}) || len(remarks) != 4 || !strings.HasPrefix(remarks[0], "gone is omitted: ") {
		t.Errorf("%q, %q, %v", subjects, remarks, err)
	}
	if subjects, _, err := answered(m, "runs/c", []string{"other"}, true); err != nil || !slices.Equal(subjects, []string{"other"}) {
		t.Errorf("chosen: %q, %v", subjects, err)
	}
}

// An interrupted calibration that cannot answer is skipped, as the message at its end says. If it was named, or is
// complete, the plan fails.
func TestPlanPassesOverWhatWasInterrupted(t *testing.T) {
	for _, c := range []struct {
		status        string
		guessed       bool
		named, passed bool
	}{
		{status: raw.StatusInterrupted, guessed: true, passed: true},
		{status: raw.StatusInterrupted, guessed: true, named: true},
		{status: raw.StatusInterrupted},
		{status: raw.StatusComplete, guessed: true},
	} {
		dir := calibratedHere(t)
		m := *capacitytest.Model()
		m.Versions, m.Machine, m.Status = machine.DetectVersions(t.Context()), machine.DetectMachine(), c.status
		one := *m.Subjects[0]
		one.Terms = slices.Clone(one.Terms)
		for i := range one.Terms {
			if c.guessed {
				one.Terms[i].Score = 0.9
			}
		}
		m.Subjects = append([]*model.Subject{&one}, m.Subjects[1:]...)
		if err := m.Write(dir); err != nil {
			t.Fatal(err)
		}
		var f planModel
		if c.named {
			f.model.path = dir
		}
		wanted := []string{one.Name}
		_, _, subjects, err := f.found(t.Context(), streams{err: io.Discard}, wanted)
		if passed := errors.Is(err, errNoCalibration); passed != c.passed || (err != nil) != c.guessed || err == nil && subjects[0] != one.Name {
			t.Errorf("%+v: %q, %v", c, subjects, err)
		} else if passed && strings.Count(err.Error(), "\n") != 1 {
			t.Errorf("%+v: not reported in one line: %v", c, err)
		}
		want := "the same command answers from them"
		if c.guessed {
			want = "the same command starts again"
		}
		if said := f.interrupted(dir, wanted); !strings.Contains(said, want) || !strings.Contains(said, dir) {
			t.Errorf("%+v: %s; want %s", c, said, want)
		}
	}
}

// A calibration gets the remaining time, if that is long enough to be useful.
func TestCalibrationTime(t *testing.T) {
	for _, c := range []struct{ budget, left, want time.Duration }{
		{4 * time.Minute, 9 * time.Minute, 4 * time.Minute},
		{4 * time.Minute, 3 * time.Minute, 3*time.Minute - planningTime},
		{4 * time.Minute, 10 * time.Second, shortestBudget},
		{30 * time.Second, 10 * time.Second, 30 * time.Second},
	} {
		if got := calibrationTime(c.budget, c.left); got != c.want {
			t.Errorf("budget %v, %v left: %v; want %v", c.budget, c.left, got, c.want)
		}
	}
}
