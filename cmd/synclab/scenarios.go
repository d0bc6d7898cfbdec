package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	goyaml "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"

	"synclab/cmd/synclab/terminal"
	"synclab/scenarios"
)

func newScenarios(s streams) *cobra.Command {
	var format terminal.Format
	list := func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			if slices.ContainsFunc(scenarios.List(), func(s *scenarios.Scenario) bool { return s.Name == args[0] }) {
				return badUsage(cmd, "unknown command %q; did you mean scenarios describe %s?", args[0], args[0])
			}
			return unknownCommand(cmd, args[0])
		}
		return listScenarios(s.out, format)
	}
	cmd := &cobra.Command{
		Use:   "scenarios",
		Short: "List and describe the scenarios of the library",
		Example: `  synclab scenarios
  synclab scenarios list -o json
  synclab scenarios describe size-sweep
  synclab scenarios describe size-sweep -o yaml > my-scenario.yaml  # a start for your own`,
		Args: cobra.ArbitraryArgs,
		RunE: list,
	}
	format.Register(cmd)
	listing := &cobra.Command{
		Use:     "list",
		Short:   "List the scenarios of the library",
		Example: "  synclab scenarios list\n  synclab scenarios list -o yaml",
		Args:    argCount(0, 0, ""),
		RunE:    list,
	}
	format.Register(listing)
	cmd.AddCommand(listing, newDescribe(s))
	return cmd
}

func newDescribe(s streams) *cobra.Command {
	var (
		scenario scenarioFlags
		format   terminal.Format
	)
	cmd := &cobra.Command{
		Use:   "describe {SCENARIO | FILE.yaml}",
		Short: "Show one scenario: what it does, its steps and its sizes",
		Long: `Describe reads a scenario like 'synclab run', with the same flags, and shows it
without running it. With -o yaml it prints the scenario with all defaults; 'synclab
run' reads that file.`,
		Example: `  synclab scenarios describe steady-churn
  synclab scenarios describe size-sweep --services 20000
  synclab scenarios describe ./mine.yaml --set steps.churn.rate=50 -o yaml`,
		Args: argCount(1, 1, "a scenario"),
		RunE: func(cmd *cobra.Command, args []string) error {
			chosen, err := scenario.load(cmd, args)
			if err != nil {
				return err
			}
			return describeScenario(s.out, format, chosen)
		},
	}
	scenario.register(cmd)
	format.Register(cmd)
	return cmd
}

// scenarioHead is a line of the list.
type scenarioHead struct {
	Name        string   `json:"name"`
	Description string   `json:"description"`
	Labels      []string `json:"labels,omitempty"`
	Services    int      `json:"services"`
	Cells       int      `json:"cells"`
}

func listScenarios(w io.Writer, format terminal.Format) error {
	var heads []scenarioHead
	for _, s := range scenarios.List() {
		cells, err := s.Cells()
		if err != nil {
			return fmt.Errorf("scenario %s: %w", s.Name, err)
		}
		heads = append(heads, scenarioHead{s.Name, s.Description, s.Labels, s.Shape.Services, len(cells)})
	}
	return format.Write(w, heads, func(w io.Writer) error {
		rows := [][]string{{"NAME", "SERVICES", "CELLS", "WHAT IT TRIES"}}
		for _, h := range heads {
			rows = append(rows, []string{h.Name, strconv.Itoa(h.Services), strconv.Itoa(h.Cells), firstLine(h.Description)})
		}
		return terminal.Columns(w, rows...)
	})
}

// describeScenario prints the scenario's YAML, in which a duration is "1s" and not a count of nanoseconds.
func describeScenario(w io.Writer, format terminal.Format, s *scenarios.Scenario) error {
	text, err := s.YAML()
	if err != nil {
		return err
	}
	switch format {
	case "yaml":
		_, err := w.Write(text)
		return err
	case "json":
		var plain any
		if err := yaml.Unmarshal(text, &plain); err != nil {
			return err
		}
		return format.Write(w, plain, nil)
	}
	cells, err := s.Cells()
	if err != nil {
		return badInput(err)
	}
	rows := [][]string{
		{"Name:", s.Name},
		{"What it tries:", strings.Join(strings.Fields(s.Description), " ")},
		{"Labels:", strings.Join(s.Labels, ", ")},
		{"Seed:", strconv.FormatUint(s.Seed, 10)},
		{"Cluster:", shapeOf(s.Shape)},
	}
	for i, axis := range s.Sweep {
		rows = append(rows, []string{heading(i, "Sweep:"), axis.Field + " = " + sweptValues(cells, axis.Field)})
	}
	rows = append(rows, []string{"Cells:", strconv.Itoa(len(cells))})
	for i, target := range s.Targets {
		rows = append(rows, []string{heading(i, "Targets:"), target.String()})
	}
	for i, line := range s.ThresholdLines() {
		rows = append(rows, []string{heading(i, "Thresholds:"), line})
	}
	for i, step := range s.Steps {
		line, err := stepLine(step)
		if err != nil {
			return err
		}
		rows = append(rows, []string{heading(i, "Steps:"), fmt.Sprintf("%d  %s", i, line)})
	}
	return terminal.Columns(w, rows...)
}

// heading returns text for the first line of a group, and nothing for the others.
func heading(i int, text string) string {
	if i > 0 {
		return ""
	}
	return text
}

func shapeOf(s scenarios.Shape) string {
	number := strconv.Itoa(s.Endpoints.Count)
	if s.Endpoints.Distribution == "uniform" {
		number = fmt.Sprintf("%d to %d", s.Endpoints.Min, s.Endpoints.Max)
	}
	return fmt.Sprintf("%d Services, %s endpoints each (%s), %d nodes, %s",
		s.Services, number, s.Endpoints.Distribution, s.Nodes, strings.Join(s.Families, " and "))
}

// sweptValues returns the different values of a field in the cells, in order.
func sweptValues(cells []scenarios.Cell, field string) string {
	var values []string
	seen := map[string]bool{}
	for _, cell := range cells {
		if value := cell.Params[field]; !seen[value] {
			seen[value] = true
			values = append(values, value)
		}
	}
	return strings.Join(values, ", ")
}

// stepLine returns a step in one line: its kind and its fields. It uses YAML for durations with units.
func stepLine(step scenarios.Step) (string, error) {
	text, err := goyaml.Marshal(step)
	if err != nil {
		return "", err
	}
	var fields map[string]map[string]any
	if err := goyaml.Unmarshal(text, &fields); err != nil {
		return "", err
	}
	line, own := step.Kind(), fields[step.Kind()]
	for _, field := range slices.Sorted(maps.Keys(own)) {
		line += fmt.Sprintf("  %s: %v", field, own[field])
	}
	return line, nil
}
