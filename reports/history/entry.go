package history

import (
	"encoding/json"
	"fmt"

	"synclab/bench/outfile"
	"synclab/bench/raw"
	"synclab/reports/comparison"
	"synclab/reports/estimate"
	"synclab/reports/records"
)

// Entry is a run in a history: one line of a history file.
type Entry struct {
	Run     raw.Run  `json:"run"`
	Figures []Figure `json:"figures"`
}

// Figure is a figure of one subject in one cell.
type Figure struct {
	Subject string       `json:"subject"`
	Cell    records.Cell `json:"cell"`
	Detail  string       `json:"detail,omitempty"` // which fault, or kind of packet
	estimate.Estimate
}

// entryOf derives the figures of a run.
func entryOf(run *records.Run) Entry {
	e := Entry{Run: run.Info}
	c := records.Collect([]*records.Run{run})
	for _, one := range c.Series {
		for _, cell := range c.Cells {
			samples := one.Cells[cell.ID()]
			if samples == nil {
				continue
			}
			source, exceeded := comparison.SourceOf([]*records.Samples{samples}), comparison.ExceededOf(samples)
			for _, f := range comparison.RunFigures(samples) {
				if value := f.Of(samples, source, exceeded); value != nil {
					e.Figures = append(e.Figures, Figure{Subject: one.Subject, Cell: cell, Detail: f.Detail, Estimate: *value})
				}
			}
		}
	}
	return e
}

// Check reports whether Append can add to a file: a new one, or a history.
func Check(file string) error {
	f, err := outfile.Append(file, 0o644)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	_, err = readFile(file)
	return err
}

// Append adds a run's folder to a history file.
func Append(file, dir string) error {
	run, err := records.Load(dir)
	if err != nil {
		return err
	}
	line, err := json.Marshal(entryOf(run))
	if err != nil {
		return err
	}
	f, err := outfile.Append(file, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n')) // one write, so that two runs at a time cannot mix their lines
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return fmt.Errorf("history: %w", outfile.Full(file, err))
	}
	return nil
}
