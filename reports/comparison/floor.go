package comparison

import (
	"fmt"
	"slices"

	"synclab/bench/raw"
	"synclab/bench/subject"
	"synclab/reports/records"
)

// Floor is the kernel floor of a cell: the least kernel time of a sync by any subject on one kernel interface. A sync
// would take this time if all work outside the kernel took none.
type Floor struct {
	Interface string  `json:"interface"` // legacy: whole tables by a socket option; nf_tables: netlink, also of iptables-nft
	Metric    string  `json:"metric"`    // full_sync_kernel or partial_sync_kernel
	Value     float64 `json:"value"`     // seconds
	Series    string  `json:"series"`    // the series with the least kernel time

	Place string `json:"-"` // the kernel and the processor that the value is valid for
}

// placeOf returns a run's kernel and processor. Times on different ones are not comparable.
func placeOf(r raw.Run) string {
	return fmt.Sprintf("%s on %s", r.Versions.Kernel, records.MachineText(r.Machine))
}

// PlacesOf returns the places of sides, in their order.
func PlacesOf(sides []Side) []string {
	var places []string
	for _, side := range sides {
		places = append(places, side.place)
	}
	return records.Distinct(places)
}

// FloorsOf returns the kernel floors of a cell's sides.
func FloorsOf(sides []Side) []Floor {
	var floors []Floor
	for _, metric := range []string{FigureFullSys, FigurePartialSys} {
		for _, through := range []string{"legacy", "nf_tables"} {
			for _, place := range PlacesOf(sides) {
				least := Floor{Interface: through, Metric: metric, Place: place}
				for _, side := range sides {
					f := side.Figure(metric)
					if side.place == place && subject.Named(side.Subject).KernelInterface() == through && f != nil && f.Value > 0 && !f.Stopped && (least.Series == "" || f.Value < least.Value) {
						least.Value, least.Series = f.Value, side.Series
					}
				}
				if least.Series != "" {
					floors = append(floors, least)
				}
			}
		}
	}
	return floors
}

// Floor returns the kernel floor of a side's sync; nil if unknown.
func (c CellComparison) Floor(side Side, sync string) *Floor {
	i := slices.IndexFunc(c.Floors, func(f Floor) bool {
		return f.Metric == FigureOf(sync).Kernel && f.Interface == subject.Named(side.Subject).KernelInterface() && f.Place == side.place
	})
	if i < 0 {
		return nil
	}
	return &c.Floors[i]
}

// AboveFloor is a side's sync divided by the kernel floor. ok is false if either is unknown.
func (c CellComparison) AboveFloor(side Side, sync string) (times float64, ok bool) {
	floor, whole := c.Floor(side, sync), side.Figure(sync)
	if floor == nil || whole == nil || whole.AtLeast {
		return 0, false
	}
	return whole.Value / floor.Value, true
}

// TimesFloor is "1.4×", or a dash.
func (c CellComparison) TimesFloor(side Side, sync string) string {
	if v, ok := c.AboveFloor(side, sync); ok {
		return Times(v) + "×"
	}
	return "–"
}
