package reports

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"synclab/bench/outfile"
	"synclab/reports/capacity"
	"synclab/reports/model"
)

// The files of a plan's folder.
const (
	// AnswerFile is an answer, without its model, which is in model.File beside it.
	AnswerFile = "plan.json"
	// CapacityPage is what BuildCapacity writes for people.
	CapacityPage = "capacity.html"
)

// WriteAnswer keeps an answer in a folder, and the model it rests on beside it, so that BuildCapacity can be done again.
func WriteAnswer(dir string, a *capacity.Answer) error {
	if a.Model == nil {
		return errors.New("plan: the answer has no cost model to keep beside it")
	}
	text, err := json.MarshalIndent(a, "", "  ")
	if err != nil {
		return fmt.Errorf("%s: %w", AnswerFile, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if kept, _, err := model.Load(dir, model.Here{Elsewhere: true}); err != nil || kept.Run != a.Model.Run || !kept.Made.Equal(a.Model.Made) {
		if err := a.Model.Write(dir); err != nil { // in the calibration's own folder it is there already
			return err
		}
	}
	return outfile.Write(filepath.Join(dir, AnswerFile), append(text, '\n'), 0o644)
}

// LoadAnswer reads what WriteAnswer kept. The model may be of any machine: it answers nothing anew.
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
	if a.Unit != a.Question.Growth.Unit() { // it was not kept before limits were counted in it
		return nil, fmt.Errorf("%s: another version of synclab made it, and counted limits otherwise; plan again: %s", path, cmp.Or(a.Command, "synclab plan"))
	}
	if a.Model, _, err = model.Load(dir, model.Here{Elsewhere: true}); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return a, nil
}

// HasAnswer says whether a folder holds an answer.
func HasAnswer(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, AnswerFile))
	return err == nil
}
