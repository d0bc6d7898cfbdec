package export

import (
	"encoding/json"
	"io"

	"synclab/reports/sections"
)

// perfData is a file of PerfDash: perftype.PerfData in Kubernetes' test/e2e.
type perfData struct {
	Version string     `json:"version"`
	Items   []perfItem `json:"dataItems"`
}

type perfItem struct {
	Data   map[string]float64 `json:"data"`
	Unit   string             `json:"unit"`
	Labels map[string]string  `json:"labels"`
}

// perfDashUnits maps a unit to that of PerfDash and the factor between them. Others have no unit there.
var perfDashUnits = map[string]struct {
	unit   string
	factor float64
}{"s": {"ms", 1000}, "B": {"B", 1}, "count": {"", 1}, "ratio": {"%", 100}}

// PerfDash writes one item for each row, with the metric as a label. All items have the same labels: PerfDash's page
// shows an item only if it has a value for each label that another item has.
func PerfDash(w io.Writer, s *sections.Summary) error {
	out := perfData{Version: "v1", Items: []perfItem{}}
	names := given(s.Rows)
	for _, r := range s.Rows {
		item := perfItem{Labels: map[string]string{"metric": string(r.Metric)}}
		for _, l := range labels(r) {
			if names[l.name] {
				item.Labels[l.name] = l.value
			}
		}
		unit := perfDashUnits[r.Unit]
		if unit.factor == 0 {
			unit.unit, unit.factor = r.Unit, 1
		}
		item.Unit = unit.unit
		item.Data = map[string]float64{"Perc50": r.Median * unit.factor, "Perc90": r.P90 * unit.factor, "Perc99": r.P99 * unit.factor}
		out.Items = append(out.Items, item)
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(out)
}
