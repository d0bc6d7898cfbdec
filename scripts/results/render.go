package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"synclab/bench/raw"
)

// mostCommands is up to how many commands of a part are named below its results.
const mostCommands = 3

// render writes one output into the documents below docs.
func (m *measurement) render(o output, docs string) error {
	text, err := os.ReadFile(filepath.Join(m.dir, o.From))
	if err != nil {
		return err
	}
	path := filepath.Join(docs, o.File)
	if o.picture() {
		return os.WriteFile(path, text, 0o644)
	}
	content, err := o.cut(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(m.dir, o.From), err)
	}
	run, _, err := raw.ReadRun(filepath.Join(m.dir, o.Run))
	if err != nil {
		return err
	}
	commands := []string{"`make results PART=" + m.part.Name + "`"}
	if len(m.part.Commands) <= mostCommands {
		commands = nil
		for _, command := range m.part.Commands {
			command = strings.TrimPrefix(command, "-")
			commands = append(commands, "`"+programOf(strings.Fields(command), "synclab")+" "+withoutFolder(m.values.expand(command, "runs/results/"+m.part.Name))+"`")
		}
	}
	content = strings.TrimSpace(content)
	if m.part.says(o) {
		content += "\n\n" + provenance(m.part.Name, run, commands)
	}
	document, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		document = fmt.Appendf(nil, "# %s%s\n", strings.ToUpper(m.part.About[:1]), m.part.About[1:])
		for _, other := range m.part.Outputs {
			if other.File == o.File {
				document = fmt.Appendf(document, "\n<!-- results:%[1]s -->\n<!-- /results:%[1]s -->\n", other.Block)
			}
		}
	} else if err != nil {
		return err
	}
	replaced, err := replaceBlock(string(document), o.Block, content)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, []byte(replaced), 0o644)
}

// says reports whether an output says how it was measured: the last one of a run in its document does.
func (p *part) says(o output) bool {
	later := p.Outputs[1+slices.Index(p.Outputs, o):]
	return !slices.ContainsFunc(later, func(other output) bool { return other.File == o.File && other.Run == o.Run })
}

// cut returns the part of a file that an output names.
func (o *output) cut(text string) (string, error) {
	switch {
	case o.Section != "":
		lines := strings.Split(text, "\n")
		start := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, "#") && strings.Contains(line, o.Section) })
		if start < 0 {
			return "", fmt.Errorf("no heading with %q", o.Section)
		}
		lines = lines[start+1:]
		if end := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, "#") || strings.HasPrefix(line, "<details>") }); end >= 0 {
			lines = lines[:end]
		}
		text = strings.Join(lines, "\n")
	case o.Lines != "":
		start := regexp.MustCompile(`(?m)` + o.Lines).FindStringIndex(text)
		if start == nil {
			return "", fmt.Errorf("no line matches %q", o.Lines)
		}
		text = text[start[0]:]
		until := regexp.MustCompile("(?m)" + cmp.Or(o.Until, "^$"))
		if end := until.FindStringIndex(text); end != nil {
			text = text[:end[0]]
		}
		if strings.HasPrefix(text, "#") || strings.HasPrefix(text, "|") {
			return text, nil // Markdown
		}
		return "```text\n" + strings.TrimRight(text, "\n") + "\n```", nil
	}
	return text, nil
}

// folderFlags name a run's folder, which does not affect its results.
var folderFlags = regexp.MustCompile(` --(out \S+|force)`)

func withoutFolder(command string) string { return folderFlags.ReplaceAllString(command, "") }

// provenance describes when, on which machine and with which versions something was measured.
func provenance(part string, run raw.Run, commands []string) string {
	v, m := run.Versions, run.Machine
	versions := []string{"Linux " + v.Kernel}
	for _, version := range []string{v.IPTablesLegacy, v.IPTablesNft, v.Nft} {
		if version != "" {
			versions = append(versions, version)
		}
	}
	if v.KubeProxy != "" {
		versions = append(versions, "kube-proxy "+v.KubeProxy)
	}
	if v.Cilium != "" {
		versions = append(versions, "Cilium "+v.Cilium)
	}
	return fmt.Sprintf("Measured %s at commit %s, part %s of `make results`: %s, %d CPUs, %.1f GiB; %s, %s; seed %d: %s.",
		run.Started.UTC().Format("2006-01-02"), v.Synclab, part, m.CPU, m.CPUs, float64(m.MemoryBytes)/(1<<30),
		strings.Join(versions, ", "), v.Go, run.Seed, strings.Join(commands, ", "))
}

// replaceBlock replaces the content between the markers of a block.
func replaceBlock(document, block, content string) (string, error) {
	begin, end := "<!-- results:"+block+" -->\n", "<!-- /results:"+block+" -->"
	before, rest, ok := strings.Cut(document, begin)
	if !ok {
		return "", fmt.Errorf("no marker %s", strings.TrimSpace(begin))
	}
	_, after, ok := strings.Cut(rest, end)
	if !ok {
		return "", fmt.Errorf("no marker %s", end)
	}
	return before + begin + content + "\n" + end + after, nil
}
