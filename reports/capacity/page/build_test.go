package page

import (
	"bytes"
	"encoding/base64"
	"encoding/csv"
	"html"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"synclab/reports/capacity"
	"synclab/reports/doc"
	"synclab/reports/model"
	"synclab/reports/synthetic"
)

// buildPage writes the page of an answer and returns it. With SYNCLAB_SAMPLE_REPORTS, it writes there, for
// inspection.
func buildPage(t *testing.T, a *capacity.Answer) (dir, page string) {
	t.Helper()
	dir = t.TempDir()
	if sample := os.Getenv("SYNCLAB_SAMPLE_REPORTS"); sample != "" {
		dir = filepath.Join(sample, t.Name())
	}
	if err := Build(a, dir, false); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, CapacityPage))
	if err != nil {
		t.Fatal(err)
	}
	return dir, string(text)
}

func TestAccess(t *testing.T) {
	_, page := buildPage(t, lawfulAnswer())
	synthetic.CheckAccess(t, []byte(page))
}

func TestCapacityPageHasEverySection(t *testing.T) {
	_, page := buildPage(t, lawfulAnswer())
	for _, id := range []string{"answer", "frontier", "curves", "validation", "sensitivity", "growth", "backends", "limits", "raw"} {
		if !strings.Contains(page, `<section id="`+id+`"`) {
			t.Errorf("no section %q", id)
		}
	}
	for section, figures := range map[string][]string{"frontier": {"capacity-frontier"},
		"curves":     {"capacity-programming_p99", "capacity-cpu", "capacity-memory", "capacity-first_packet", "capacity-start"},
		"validation": {"capacity-predicted-syncs", "capacity-predicted-memory", "capacity-predicted-packets", "capacity-predicted-rules"}, "sensitivity": {"capacity-sensitivity"},
		"growth": {"capacity-growth-rules", "capacity-growth-syncs"}} {
		for _, name := range figures {
			if !strings.Contains(page, `<figure id="`+name+`"`) {
				t.Errorf("%s: no figure %s", section, name)
			}
		}
	}
	for _, text := range []string{"synclab plan --services 2000 --grow services=4x", "6.18.0", "AMD EPYC", "seed of the plan", "The SLO for memory is violated first."} {
		if !strings.Contains(page, text) {
			t.Errorf("the page lacks %q", text)
		}
	}
	if n, named := strings.Count(page, "<svg role=\"img\""), strings.Count(page, "<svg role=\"img\" aria-label=\""); n == 0 || n != named {
		t.Errorf("%d plots, %d with a text for screen readers", n, named)
	}
}

// Without validation, growth, violated SLOs or other subjects, the page is shorter and states the reasons.
func TestCapacityPageOfLittle(t *testing.T) {
	a := lawfulAnswer()
	a.Subjects, a.Model.Validation, a.Target, a.Command, a.Comparisons = a.Subjects[:1], nil, nil, "", nil
	a.Subjects[0].Target, a.Subjects[0].Sensitivity, a.Subjects[0].Frontier = nil, nil, nil
	_, page := buildPage(t, a)
	if !strings.Contains(page, "--hold-out") {
		t.Error("the page does not explain how to get a validation")
	}
	for _, id := range []string{"backends", "sensitivity", "frontier"} {
		if strings.Contains(page, `<section id="`+id+`"`) {
			t.Errorf("section %q without content", id)
		}
	}
	if strings.Contains(page, "NaN") || strings.Contains(page, "Inf") {
		t.Error("the page has NaN or Inf")
	}
}

var externalResource = regexp.MustCompile(`(?i)(?:src|href|url|srcset|action)\s*(?:=\s*["']?|\()\s*["']?(?:https?:)?//[^"')\s>]*|@import|<script[^>]+src|<link`)

func TestCapacityPageIsSelfContained(t *testing.T) {
	_, page := buildPage(t, lawfulAnswer())
	for _, found := range externalResource.FindAllString(page, -1) {
		t.Errorf("external: %s", found)
	}
	for _, link := range regexp.MustCompile(`href="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		if !strings.HasPrefix(link[1], "#") && !strings.HasPrefix(link[1], "data:text/csv") {
			t.Errorf("a link out of the page: %.60s", link[1])
		}
	}
}

// Every estimate of the answer is on the page with its basis.
func TestCapacityPageShowsEachBasis(t *testing.T) {
	a := lawfulAnswer()
	r := newReport(a)
	for _, table := range []*doc.Table{r.answerTable(), r.limitsTable(), r.frontierTable(-1), r.curveTable()} {
		seen := 0
		for _, row := range table.Rows {
			for _, cell := range row {
				for _, basis := range []model.Basis{model.Measured, model.Interpolated, model.Extrapolated} {
					if strings.Contains(cell.Sub, string(basis)) {
						seen++
						if cell.Text != "none" && !strings.HasPrefix(cell.Text, basisMark(basis)) {
							t.Errorf("%s: %q is %s, without the mark", table.Title, cell.Text, basis)
						}
					}
				}
			}
		}
		if seen < len(table.Rows) {
			t.Errorf("%q: %d bases in %d rows", table.Title, seen, len(table.Rows))
		}
	}
	bases := map[model.Basis]int{}
	for i, s := range a.Subjects {
		for j, o := range s.Curve {
			row := r.curveTable().Rows[i*len(s.Curve)+j]
			for k, name := range []string{capacity.ProgrammingP99, capacity.CPU, capacity.Memory, capacity.FirstPacketP99, capacity.Start} {
				e := o.Quantities[name]
				bases[e.Basis]++
				if cell := row[5+k]; cell.Value != doc.Exact(e.Median) || !strings.HasSuffix(cell.Sub, basisText(e)) {
					t.Errorf("%s at %d Services: %s is shown as %+v", s.Name, o.Cluster.Services, name, cell)
				}
			}
		}
	}
	if len(bases) != 3 {
		t.Errorf("the answer of the test has bases %v, want all three", bases)
	}
}

func readCSV(t *testing.T, content []byte) []map[string]string {
	t.Helper()
	rows, err := csv.NewReader(bytes.NewReader(content)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var out []map[string]string
	for _, row := range rows[1:] {
		one := map[string]string{}
		for i, name := range rows[0] {
			one[name] = row[i]
		}
		out = append(out, one)
	}
	return out
}

func TestCapacityCSVAgreesWithTheAnswer(t *testing.T) {
	a := lawfulAnswer()
	dir, page := buildPage(t, a)
	files := map[string][]byte{}
	for _, name := range []string{"capacity.csv", "frontier.csv", "limits.csv"} {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = content
		link := regexp.MustCompile(`href="data:text/csv;charset=utf-8;base64,([^"]*)" download="` + regexp.QuoteMeta(name) + `"`).FindStringSubmatch(page)
		if link == nil {
			t.Fatalf("the page does not embed %s", name)
		}
		carried, err := base64.StdEncoding.DecodeString(html.UnescapeString(link[1]))
		if err != nil || !bytes.Equal(carried, content) {
			t.Errorf("%s of the page is not the file (%v)", name, err)
		}
	}
	curves := readCSV(t, files["capacity.csv"])
	for _, s := range a.Subjects {
		for _, o := range s.Curve {
			found := 0
			for _, row := range curves {
				if e, ok := o.Quantities[row["quantity"]]; ok && row["subject"] == s.Name && row["services"] == strconv.Itoa(o.Cluster.Services) {
					found++
					for column, want := range map[string]float64{"median": e.Median, "low": e.Low, "high": e.High, "beyond": e.Beyond} {
						if got, err := strconv.ParseFloat(row[column], 64); err != nil || got != want {
							t.Errorf("%s %s %s: %s is %q, want %v", s.Name, row["services"], row["quantity"], column, row[column], want)
						}
					}
					if row["basis"] != string(e.Basis) {
						t.Errorf("%s %s %s: basis %q, want %q", s.Name, row["services"], row["quantity"], row["basis"], e.Basis)
					}
				}
			}
			if found != len(o.Quantities) {
				t.Errorf("%s at %d Services: %d quantities, want %d", s.Name, o.Cluster.Services, found, len(o.Quantities))
			}
		}
	}
	recommended, settings := map[string]string{}, 0
	for _, row := range readCSV(t, files["frontier.csv"]) {
		settings++
		if row["recommended"] == "true" {
			recommended[row["subject"]] += row["min_sync_period_s"]
		}
	}
	limits := readCSV(t, files["limits.csv"])
	for _, s := range a.Subjects {
		settings -= len(s.Frontier)
		if want := doc.Exact(s.Recommended.Policy.MinSyncPeriod.Seconds()); recommended[s.Name] != want {
			t.Errorf("%s: recommended %q, want %s", s.Name, recommended[s.Name], want)
		}
		rows := 0
		for _, row := range limits {
			if row["subject"] == s.Name {
				rows++
				if row["policy"] == "recommended" && (row["services_median"] != doc.Exact(s.Largest.Size.Median) || row["slo"] != s.Largest.SLO) {
					t.Errorf("%s: largest is %v", s.Name, row)
				}
			}
		}
		if rows != len(s.Limits)+1 {
			t.Errorf("%s: %d limits, want %d", s.Name, rows, len(s.Limits)+1)
		}
	}
	if settings != 0 {
		t.Errorf("%d more settings than in the answer", settings)
	}
}

// A stored answer makes the same page as the answer itself, to the last byte.
func TestCapacityPageAgain(t *testing.T) {
	a := lawfulAnswer()
	dir, first := buildPage(t, a)
	_, second := buildPage(t, lawfulAnswer())
	if first != second {
		t.Error("the same answer made two pages")
	}
	kept := t.TempDir()
	if HasAnswer(kept) {
		t.Error("an answer in an empty folder")
	}
	if err := WriteAnswer(kept, a); err != nil {
		t.Fatal(err)
	}
	loaded, err := LoadAnswer(kept)
	if err != nil || !HasAnswer(kept) {
		t.Fatal(err)
	}
	if _, third := buildPage(t, loaded); first != third {
		t.Error("the stored answer makes another page")
	}
	summary, err := os.ReadFile(filepath.Join(dir, "capacity.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range a.Subjects {
		if !strings.Contains(string(summary), "| "+s.Name+" |") {
			t.Errorf("capacity.md has no row of %s", s.Name)
		}
	}
}

func TestLoadAnswerSaysWhatIsWrong(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]string{"{": "plan.json", "{}": "without subjects",
		`{"question": {"growth": {"nodes": 2}}, "command": "synclab plan --nodes 9", "subjects": [{"name": "a"}]}`: "made by another version of synclab, which counted limits differently; plan again: synclab plan --nodes 9"} {
		if err := os.WriteFile(filepath.Join(dir, AnswerFile), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadAnswer(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q in it", text, err, want)
		}
	}
}

// capacity.md has the answer, the change of backend, the caveats and the command; the page has all else.
func TestCapacityMarkdown(t *testing.T) {
	text := capacityMarkdown(t, newReport(lawfulAnswer()))
	from := 0
	for _, part := range []string{"## How far can this cluster grow?\n",
		"Today: 2,000 Services × 10 endpoints on 100 nodes", "- The SLO for memory is violated first.\n",
		"| subject | largest cluster, Services | SLO violated first |", "| --- |", "| kube-proxy/iptables-legacy | ", "● measured, ◐ interpolated", "### Caveats\n",
		"### When a change of backend pays\n", "- synclab/nftables reaches twice the size",
		"`synclab plan --services 2000 --grow services=4x`, seed 7, calibration calibrate-1\n"} {
		i := strings.Index(text[from:], part)
		if i < 0 {
			t.Fatalf("no %q behind character %d:\n%s", part, from, text)
		}
		from += i
	}
	for _, part := range []string{"Raw numbers", "Sensitivity", "Assumptions", "The question", "<"} {
		if strings.Contains(text, part) {
			t.Errorf("%q is for the page only:\n%s", part, text)
		}
	}
}

func capacityMarkdown(t *testing.T, r *report) string {
	t.Helper()
	var b strings.Builder
	if err := r.document().Markdown(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// Tables and plots name the unit of growth in their heads.
func TestCapacityPageNamesWhatGrows(t *testing.T) {
	for _, c := range []struct {
		growth                        capacity.Growth
		largest, column, at, crossing string
	}{
		{capacity.Growth{Services: 4}, "24|18 – 29", "services_median", "24 Services", "from 9,000 Services on"},
		{capacity.Growth{Endpoints: 4}, "24.3|18.2 – 28.6", "endpoints_per_service_median", "24.3 endpoints of each Service", "from 9,000 endpoints of each Service on"},
		{capacity.Growth{Nodes: 10}, "24|18 – 29", "nodes_median", "24 nodes", "from 9,000 nodes on"},
		{capacity.Growth{Churn: 10}, "24.3|18.2 – 28.6", "changes_per_s_median", "24.3 changes a second", "from 9,000 changes a second on"},
	} {
		a := lawfulAnswer()
		a.Question.Growth, a.Unit = c.growth, c.growth.Unit()
		for i := range a.Subjects {
			s := &a.Subjects[i]
			s.Target.Size = 24.34
			s.Largest.Unbounded, s.Largest.Never = false, false
			s.Largest.Size.Median, s.Largest.Size.Low, s.Largest.Size.High = 24.34, 18.2, 28.61
		}
		r, unit := newReport(a), string(a.Unit)
		markdown := capacityMarkdown(t, r)
		for what, text := range map[string]string{"answer": r.answerTable().Columns[1].Name, "limits": r.limitsTable().Columns[3].Name,
			"sensitivity": strings.ToLower(r.sensitivityTable().Columns[3].Name), "tornado": r.figures["capacity-sensitivity"].Title,
			"curves": r.figures["capacity-programming_p99"].Panels[0].Plot.X.Label.Text, "note": doc.Sentence(planAnswerNote, r), "markdown": markdown} {
			if what == "sensitivity" {
				unit = strings.ToLower(unit)
			}
			if !strings.Contains(text, unit) {
				t.Errorf("%s: the head of the %s is %.300q", unit, what, text)
			}
			unit = string(a.Unit)
		}
		cell := r.answerTable().Rows[0][1]
		if got := strings.TrimLeft(cell.Text, "●◐○\u00a0") + "|" + strings.Split(cell.Sub, "\n")[0]; got != c.largest {
			t.Errorf("%s: %s, want %s", unit, got, c.largest)
		}
		if got := strings.Join(r.limitRows()[0], ","); !strings.Contains(got, ","+c.column+",") {
			t.Errorf("%s: columns %s, want %s", unit, got, c.column)
		}
		if got := r.frontierAt(); got != c.at {
			t.Errorf("settings evaluated at %s, want %s", got, c.at)
		}
		if got := r.crossingText(r.crossings()[1]); got != c.crossing {
			t.Errorf("crossing %s, want %s", got, c.crossing)
		}
	}
}

// The two curves cross at 2,000 Services, today's size. The target is at 8,000.
func TestCrossover(t *testing.T) {
	a := lawfulAnswer()
	outlook := func(services int, cpu float64) capacity.Evaluation {
		return capacity.Evaluation{Size: float64(services), Cluster: capacity.Cluster{Services: services, Endpoints: 10, Nodes: 1}, Quantities: map[string]capacity.Estimate{
			capacity.CPU: {Median: cpu, Low: cpu * 0.9, High: cpu * 1.1, Basis: model.Interpolated, Beyond: 1}}}
	}
	a.Subjects = a.Subjects[:2]
	a.Subjects[0].Curve, a.Subjects[1].Curve = nil, nil
	for _, services := range []int{100, 1000, 10000, 100000} {
		a.Subjects[0].Curve = append(a.Subjects[0].Curve, outlook(services, float64(services)*1e-4)) // crosses the constant at 2,000
		a.Subjects[1].Curve = append(a.Subjects[1].Curve, outlook(services, 0.2))
	}
	a.Comparisons = []capacity.Comparison{{From: a.Subjects[0].Name, To: a.Subjects[1].Name, Crossings: []capacity.Crossing{{SLO: capacity.CPU, Size: 2000, Basis: model.Interpolated}}}}
	a.Subjects[0].Today.Size, a.Subjects[0].Target.Size = 2000, 8000
	r := newReport(a)
	found := r.crossings()
	if len(found) != 1 || r.crossingText(found[0]) != "from 2,000 Services on" || found[0].clear != 10000 || found[0].clearAlways {
		t.Fatalf("crossings %+v, want one from 2,000 on, beyond doubt from 10,000", found)
	}
	if c := found[0]; math.Abs(c.today-1) > 1e-9 || math.Abs(c.target-0.25) > 1e-9 {
		t.Errorf("ratios %v today and %v at the target, want 1 and 0.25", c.today, c.target)
	}
}

// FuzzLoadAnswer reads untrusted answers of plans. The result is an error or a page.
func FuzzLoadAnswer(f *testing.F) {
	kept := f.TempDir()
	if err := WriteAnswer(kept, lawfulAnswer()); err != nil {
		f.Fatal(err)
	}
	answer, err := os.ReadFile(filepath.Join(kept, AnswerFile))
	if err != nil {
		f.Fatal(err)
	}
	cost, err := os.ReadFile(filepath.Join(kept, model.File))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(answer)
	f.Add([]byte(`{"unit":"services","subjects":[{"name":"a"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		dir := t.TempDir()
		for name, text := range map[string][]byte{AnswerFile: text, model.File: cost} {
			if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if a, err := LoadAnswer(dir); err == nil {
			_ = Build(a, dir, false)
		}
	})
}
