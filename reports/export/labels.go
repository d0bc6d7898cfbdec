package export

import (
	"strconv"

	"synclab/reports/records"
	"synclab/reports/sections"
)

// label is a name and its value. An empty value means that the row has no such part.
type label struct{ name, value string }

// labels are what distinguishes a row from the others of its metric.
func labels(r sections.Row) []label {
	position := ""
	if r.Position != nil {
		position = strconv.Itoa(*r.Position)
	}
	return []label{{"subject", r.Series}, {"scenario", r.Cell.Scenario}, {"services", strconv.Itoa(r.Cell.Services)},
		{"endpoints", records.EndpointsText(r.Cell.Endpoints)}, {"settings", r.Cell.Settings()}, {"kind", r.Kind}, {"table", r.Table},
		{"family", r.Family}, {"position", position}, {"target", r.Target}, {"method", r.Method}, {"protocol", r.Protocol}, {"outcome", r.Outcome}}
}

// given returns the names of the labels that a row has.
func given(rows []sections.Row) map[string]bool {
	names := map[string]bool{}
	for _, r := range rows {
		for _, l := range labels(r) {
			names[l.name] = names[l.name] || l.value != ""
		}
	}
	return names
}
