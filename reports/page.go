package reports

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"synclab/bench/raw"
	"synclab/reports/estimate"
)

//go:embed page.html.tmpl
var pageText string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// page is the data of the template.
type page struct {
	*Summary
	Subtitle  string
	Key       pageTable
	Capacity  pageTable
	Heads     pageTable // the runs, if there are several
	Aims      pageTable // Targets
	Overview  pageTable
	Sections  []pageSection // first packets, flows during changes, faults
	Compared  []pageComparison
	Fits      []pageTable
	Tables    []pageTable
	Figures   []pageFigure
	Promised  string
	Others    []otherFigure
	Spoken    []string // the sentences, with no line break between numbers and units
	Interrupt bool     // a run is not complete
}

// pageTable is any table of the page. A cell has the displayed text and the value that a click on the header sorts by.
type pageTable struct {
	Title   string
	Note    string
	Columns []pageColumn
	Rows    [][]pageCell
}

type pageColumn struct {
	Name    string
	Numeric bool
	Title   string
	Color   template.CSS // swatch of a series, if columns are subjects
}

type pageCell struct {
	Text  string
	Sub   string       // a second line, small
	Value string       // full precision; empty: sort by text
	Color template.CSS // swatch of the series, in front
	Faint bool
	Loud  bool // a result that should not occur
	Right bool // aligned like its column
	Title string
}

// Class returns the cell's CSS classes.
func (c pageCell) Class() string {
	var out []string
	for name, set := range map[string]bool{"faint": c.Faint, "loud": c.Loud, "num": c.Right} {
		if set {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// pageSection is a part of the page for runs with certain records.
type pageSection struct {
	ID, Title string
	Notes     []string
	Tables    []pageTable
	Folded    []pageTable // further sizes
	Texts     []pageNote
}

// pageNote is a remark, and below it a command or an output.
type pageNote struct{ Remark, Text string }

type pageFigure struct {
	Plot
	Markup template.HTML
}

// otherFigure is a published measurement. It is for orientation, not for comparison, since machines differ.
type otherFigure struct{ What, Figure, Source string }

var others = []otherFigure{
	{"First packet, iptables, 5,000 / 10,000 / 30,000 Services, median", "49 / 61 / 274 µs", "Kubernetes blog, “NFTables mode for kube-proxy”, 2025 (round trip, read from its chart)"},
	{"First packet, nftables, 5,000 to 30,000 Services, median", "14 µs", "the same"},
	{"iptables-restore of 578,470 nat rules (3,595 Services, 211,876 endpoints)", "10.5 s", "kubernetes/kubernetes#138073"},
	{"Full sync, iptables, restart at 10,000 Services × 2", "40 s", "kubernetes/kubernetes#130119"},
	{"Network programming latency in a cluster of 5,000 nodes, median, minSyncPeriod 10 s → 1 s", "13 s → 5 s", "KEP-3453"},
	{"Default limit on network programming latency in scale tests, p99", "30 s", "clusterloader2"},
}

func (s *Summary) writePage(w io.Writer) error {
	p := page{Summary: s, Subtitle: s.subtitle(), Key: s.keyTable(), Capacity: s.capacityTable(), Compared: s.pageComparisons(),
		Fits: s.fitTables(), Tables: s.rowTables(), Others: others}
	p.Promised = fmt.Sprintf("full sync ≤ %s (median), network programming latency p99 ≤ %s, first packet ≤ %s "+
		"(median at the slowest position, minus the cost in an empty ruleset)", trimTick(Format(s.SLOs.FullSync, "s")),
		trimTick(Format(s.SLOs.ProgrammingP99, "s")), trimTick(Format(s.SLOs.FirstPacket, "s")))
	for _, sentence := range s.Sentences {
		p.Spoken = append(p.Spoken, beforeUnit.ReplaceAllString(sentence, "$1\u00a0$2"))
	}
	for _, run := range s.Runs {
		p.Interrupt = p.Interrupt || run.Status != "complete"
	}
	if s.allCompared() {
		p.Key = pageTable{} // the comparisons have all key figures
	}
	for _, section := range []*pageSection{s.packetSection(), s.faultSection(), s.disruptionSection(), s.invariantSection()} {
		if section != nil {
			p.Sections = append(p.Sections, *section)
		}
	}
	p.Aims, p.Overview, p.Heads = s.targetsTable(), s.overviewTable(), s.runsTable()
	for _, one := range s.Plots {
		p.Figures = append(p.Figures, pageFigure{one, inlineSVG(one)})
	}
	return pageTemplate.Execute(w, p)
}

var beforeUnit = regexp.MustCompile(`([0-9]|≤) (s|ms|µs|ns|%|[KMG]iB|[0-9])`)

var svgSize = regexp.MustCompile(`<svg width="[^"]*" height="[^"]*"`)

// inlineSVG removes the XML head and lets the page set the width. vgsvg escapes all texts.
func inlineSVG(p Plot) template.HTML {
	markup := p.markup
	if i := bytes.Index(markup, []byte("<svg")); i >= 0 {
		markup = markup[i:]
	}
	open := fmt.Sprintf(`<svg role="img" aria-label="%s"`, template.HTMLEscapeString(p.Title))
	return template.HTML(svgSize.ReplaceAllLiteral(markup, []byte(open))) //nolint:gosec // drawn by this package
}

// subtitle has the descriptions of the scenarios.
func (s *Summary) subtitle() string {
	var parts []string
	for _, run := range s.Runs {
		parts = append(parts, run.Description)
	}
	return strings.Join(distinct(parts), " ")
}

// Measured is the time of the run.
func (r RunHead) Measured() string {
	text := r.Started.Format("2006-01-02 15:04 MST")
	if r.Finished != nil {
		text += ", " + r.Finished.Sub(r.Started).Round(time.Second).String()
	}
	return text
}

// VersionList has the names and versions of everything that the numbers depend on.
func (r RunHead) VersionList() [][2]string {
	var out [][2]string
	memory := ""
	if r.Machine.MemoryBytes > 0 {
		memory = formatBytes(float64(r.Machine.MemoryBytes))
	}
	cpu := fmt.Sprintf("%s × %d", r.Machine.CPU, r.Machine.CPUs)
	if r.Machine.CPUs == 0 {
		cpu = "" // several machines
	}
	privilege := "root"
	if r.Machine.UserNamespace {
		privilege = "user namespace"
	}
	for _, v := range [][2]string{
		{"scenario", r.Scenario}, {"seed", strconv.FormatUint(r.Seed, 10)}, {"repetitions", strconv.Itoa(r.Reps)},
		{"subjects", strings.Join(r.Subjects, ", ")}, {"status", r.Status}, {"measured", r.Measured()},
		{"synclab", r.Versions.Synclab}, {"Go", r.Versions.Go}, {"kernel", r.Versions.Kernel},
		{"iptables (legacy)", r.Versions.IPTablesLegacy}, {"iptables (nft)", r.Versions.IPTablesNft}, {"nft", r.Versions.Nft},
		{"kube-proxy", r.Versions.KubeProxy}, {"objects", feedText(r.Feed)},
		{"system", r.Machine.OS}, {"CPU", cpu}, {"memory", memory}, {"ran as", privilege},
	} {
		if v[1] != "" {
			out = append(out, v)
		}
	}
	return append(out, r.hostList()...)
}

func feedText(feed string) string {
	if feed == raw.FeedAPI {
		return "from the fake API server, over HTTP"
	}
	return "through informers, in process"
}

func (s *Summary) swatch(i int) template.CSS {
	c := s.color(i)
	return template.CSS(fmt.Sprintf("#%02x%02x%02x", c.R, c.G, c.B))
}

// exact formats a value so that parsing returns the same value.
func exact(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

func (s *Summary) seriesCell(name string) pageCell {
	i, _ := s.seriesNamed(name)
	return pageCell{Text: name, Color: s.swatch(i)}
}

func intCell(n int) pageCell { return pageCell{Text: Grouped(int64(n)), Value: strconv.Itoa(n)} }

func valueCell(v float64, unit string) pageCell {
	return pageCell{Text: Format(v, unit), Value: exact(v), Title: strings.TrimSpace(exact(v) + " " + unit)}
}

// optionalCell is a value that may not have been measured.
func optionalCell(v *float64, unit string) pageCell {
	if v == nil {
		return pageCell{Text: "–", Faint: true}
	}
	return valueCell(*v, unit)
}

func distributionCell(d *estimate.Distribution, of func(estimate.Distribution) float64, spread bool) pageCell {
	if d == nil {
		return pageCell{Text: "–", Faint: true}
	}
	cell := valueCell(of(*d), "s")
	if share, ok := d.Spread(); ok && spread {
		cell.Text += spreadText(share)
	}
	return cell
}

// dropSame empties a column with the same text in every row. The page's title has that text already.
func (t pageTable) dropSame(name string) pageTable {
	for i, column := range t.Columns {
		if column.Name != name {
			continue
		}
		texts := map[string]bool{}
		for _, row := range t.Rows {
			texts[row[i].Text] = true
		}
		for _, row := range t.Rows {
			if len(texts) == 1 {
				row[i] = pageCell{}
			}
		}
	}
	return t
}

// wrapping allows line breaks in narrow cells, such as between "11.5 ms" and "± 33 %", but not before a unit.
func (t pageTable) wrapping() pageTable {
	for _, row := range t.Rows {
		for i, cell := range row {
			row[i].Text, row[i].Sub = unparted(cell.Text), unparted(cell.Sub)
		}
	}
	return t
}

// unparted puts non-breaking spaces between a number and its unit, and after its sign.
func unparted(text string) string {
	text = strings.ReplaceAll(beforeUnit.ReplaceAllString(text, "$1\u00a0$2"), "± ", "±\u00a0")
	return strings.ReplaceAll(text, " *", "\u00a0*")
}

// dropEmpty removes columns without values, so that the table stays narrow.
func (t pageTable) dropEmpty() pageTable {
	out := pageTable{Title: t.Title, Note: t.Note, Rows: make([][]pageCell, len(t.Rows))}
	for i, column := range t.Columns {
		used := false
		for _, row := range t.Rows {
			used = used || (row[i].Text != "" && row[i].Text != "–")
		}
		if !used {
			continue
		}
		out.Columns = append(out.Columns, column)
		for j, row := range t.Rows {
			row[i].Right = column.Numeric
			out.Rows[j] = append(out.Rows[j], row[i])
		}
	}
	return out
}
