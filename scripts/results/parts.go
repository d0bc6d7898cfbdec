package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"
)

// part is a group of published results that are measured together.
type part struct {
	Name    string `json:"name"`
	About   string `json:"about"`
	Minutes int    `json:"minutes"` // on two CPUs
	// Apart parts are only measured by name: they run on other kernels, or take long for a question of their own.
	Apart bool `json:"apart"`
	// Commands are arguments of synclab, or a shell script with its arguments, in order. {part} is the part's folder.
	// {N:5} and {REPS:6} are numbers of Services and repetitions, by default 5 and 6. A command that ends in & runs
	// beside the next ones. One that begins with - may end with status 1, which is its verdict.
	Commands []string `json:"commands"`
	Outputs  []output `json:"outputs"`
}

// output is one block in a document, or a picture.
type output struct {
	// File to write: a document, or a .png.
	File string `json:"file"`
	// Block is the name in the markers of a document.
	Block string `json:"block"`
	// From is the file to cut from, in the part's folder.
	From string `json:"from"`
	// Run is the folder, below the part's, whose run.json has the machine and the versions.
	Run string `json:"run"`
	// Section is a Markdown heading: the output is the text up to the next heading. Empty: the whole file.
	Section string `json:"section"`
	// Lines is a regular expression for plain text: the output is the lines from the first match to the next empty line.
	Lines string `json:"lines"`
	// Until ends these lines instead: before its first match after theirs.
	Until string `json:"until"`
}

// readParts reads and checks the list of parts.
func readParts(path string) ([]part, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var file struct {
		Parts []part `json:"parts"`
	}
	if err := yaml.UnmarshalStrict(text, &file); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	blocks := map[string]bool{}
	for _, p := range file.Parts {
		if p.Name == "" || len(p.Commands) == 0 || len(p.Outputs) == 0 {
			return nil, fmt.Errorf("%s: part %q: want a name, commands and outputs", path, p.Name)
		}
		for _, o := range p.Outputs {
			if err := o.check(blocks); err != nil {
				return nil, fmt.Errorf("%s: part %s: output %s: %w", path, p.Name, o.File, err)
			}
		}
	}
	return file.Parts, nil
}

func (o *output) check(blocks map[string]bool) error {
	if o.File == "" || o.From == "" {
		return fmt.Errorf("want file and from")
	}
	if o.picture() {
		return nil
	}
	place := o.File + " " + o.Block
	switch {
	case o.Block == "" || o.Run == "":
		return fmt.Errorf("want block and run")
	case blocks[place]:
		return fmt.Errorf("block %s is given twice", o.Block)
	case o.Section != "" && o.Lines != "":
		return fmt.Errorf("want section or lines, not both")
	}
	blocks[place] = true
	for _, pattern := range []string{o.Lines, o.Until} {
		if _, err := regexp.Compile(pattern); err != nil {
			return err
		}
	}
	return nil
}

func (o *output) picture() bool { return strings.HasSuffix(o.File, ".png") }

// values replace the numbers of a part in a test run.
type values struct{ services, reps string }

var placeholder = regexp.MustCompile(`\{(part|N|REPS)(?::([0-9]+))?\}`)

// expand fills in the placeholders of a command.
func (v values) expand(command, dir string) string {
	return placeholder.ReplaceAllStringFunc(command, func(text string) string {
		match := placeholder.FindStringSubmatch(text)
		chosen := match[2]
		switch {
		case match[1] == "part":
			chosen = dir
		case match[1] == "N" && v.services != "":
			chosen = v.services
		case match[1] == "REPS" && v.reps != "":
			chosen = v.reps
		}
		return chosen
	})
}
