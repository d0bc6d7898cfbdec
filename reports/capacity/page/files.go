package page

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"synclab/bench/outfile"
	"synclab/bench/shell"
	"synclab/reports/capacity"
	"synclab/reports/model"
)

// The files of a plan's folder.
const (
	// AnswerFile is an answer without its model, which is in model.File in the same folder.
	AnswerFile = "plan.json"
	// CapacityPage is the page of BuildCapacity.
	CapacityPage = "capacity.html"
)

// WriteAnswer stores an answer and its model in a folder, so that BuildCapacity can be repeated.
func WriteAnswer(dir string, a *capacity.Answer) error {
	if a.Model == nil {
		return errors.New("plan: the answer has no cost model to store")
	}
	text, err := json.MarshalIndent(a, "", "  ")
	if err != nil {
		return fmt.Errorf("%s: %w", AnswerFile, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if kept, _, err := model.Load(dir, model.Here{Elsewhere: true}); err != nil || kept.Run != a.Model.Run || !kept.Made.Equal(a.Model.Made) {
		if err := a.Model.Write(dir); err != nil { // the calibration's own folder has it already
			return err
		}
	}
	return outfile.Write(filepath.Join(dir, AnswerFile), append(text, '\n'), 0o644)
}

// LoadAnswer reads an answer from WriteAnswer. The model may be of any machine, since it makes no new predictions.
func LoadAnswer(dir string) (*capacity.Answer, error) {
	path := filepath.Join(dir, AnswerFile)
	text, err := outfile.Read(path)
	if err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	a := &capacity.Answer{}
	if err := json.Unmarshal(text, a); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(a.Subjects) == 0 {
		return nil, fmt.Errorf("%s: an answer without subjects", path)
	}
	if a.Unit != a.Question.Growth.Unit() { // older versions stored no unit of limits
		return nil, fmt.Errorf("%s: made by another version of synclab, which counted limits differently; plan again: %s", path, cmp.Or(a.Command, "synclab plan"))
	}
	if a.Model, _, err = model.Load(dir, model.Here{Elsewhere: true}); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	own, err := outfile.Own(dir, path)
	a.Foreign = err != nil || !own || !shell.Calls("synclab", a.Command)
	return a, nil
}

// HasAnswer reports whether a folder has an answer.
func HasAnswer(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, AnswerFile))
	return err == nil
}
