package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"synclab/bench/lab/netns"
	"synclab/bench/raw"
	"synclab/cmd/synclab/terminal"
	"synclab/scenarios"
)

// printed is a stream of the program. Any goroutine may write to it.
type printed struct {
	terminal.Turns
	text strings.Builder
}

func newPrinted() *printed {
	p := &printed{}
	p.W = &p.text
	return p
}

func (p *printed) String() string {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	return p.text.String()
}

// The output of several goroutines is complete, and has no race.
func TestPrintedByMany(t *testing.T) {
	const writers, lines = 8, 1000
	p := newPrinted()
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for range lines {
				_, _ = p.Write([]byte("line\n"))
			}
		})
	}
	all.Wait()
	if n := strings.Count(p.String(), "line\n"); n != writers*lines || len(p.String()) != n*len("line\n") {
		t.Errorf("%d whole lines of %d", n, writers*lines)
	}
}

// writer returns a function that writes a file of a temporary folder, and returns its path.
func writer(t *testing.T) func(name, text string) string {
	t.Helper()
	dir := t.TempDir()
	return func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
}

// invoke runs the program with args and returns its exit status and what it printed.
func invoke(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	out, errs := newPrinted(), newPrinted()
	s := streams{strings.NewReader(""), out, errs}
	err := run(t.Context(), s, args)
	status = exitStatus(t.Context(), errs, err)
	return status, out.String(), errs.String()
}

// Mistakes on the command line and in input files: status 2, a helpful message, nothing on stdout.
func TestUsageErrors(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	badConfig := write("proxy.yaml", "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmodus: ipvs\n")
	brokenRun := filepath.Join(dir, "broken")
	if err := os.Mkdir(brokenRun, 0o700); err != nil {
		t.Fatal(err)
	}
	write("broken/run.json", "{\n")
	badScenario := write("scenario.yaml", "name: mine\nspeed: 1\n")
	manifest := write("service.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {ports: [{port: 80}]}\n")

	for _, c := range []struct {
		name string
		args []string
		want []string // parts of stderr
	}{
		{"unknown command", []string{"rnu"}, []string{`unknown command "rnu"; did you mean run?`, "'synclab --help'"}},
		{"unknown subcommand", []string{"scenarios", "lst"}, []string{`unknown command "lst"; did you mean list?`}},
		{"a group's command", []string{"kernel", "list"}, []string{`unknown command "kernel"; did you mean build kernel?`}},
		{"unknown program", []string{"build", "kubeproxy"}, []string{`unknown command "kubeproxy"; did you mean kube-proxy?`, "'synclab build --help'"}},
		{"a program without a version", []string{"build", "kernel"}, []string{"missing argument: a version such as 6.12, or --source"}},
		{"source that is built", []string{"build", "kernel", "--source", "x", "--cached"}, []string{"--cached and --source exclude each other"}},
		{"unknown flag", []string{"run", "--service", "1"}, []string{"unknown flag: --service; did you mean --services?", "'synclab run --help'"}},
		{"misspelt flag", []string{"plan", "--chrun", "1"}, []string{"unknown flag: --chrun; did you mean --churn?"}},
		{"no such flag", []string{"run", "--zzzzzzz"}, []string{"unknown flag: --zzzzzzz\n"}},
		{"unknown shorthand", []string{"run", "-Q"}, []string{"unknown shorthand flag: 'Q' in -Q\n"}},
		{"unknown topic", []string{"help", "rulse"}, []string{`unknown command "rulse"; did you mean rules?`, "'synclab --help'"}},
		{"unknown topic below", []string{"help", "scenarios", "lst"}, []string{`unknown command "lst"; did you mean list?`}},
		{"wrong value", []string{"run", "--services", "many"}, []string{`"many" for "--services" flag: want a whole number` + "\n"}},
		{"wrong seed", []string{"run", "--seed", "-1"}, []string{`"-1" for "--seed" flag: want a whole number, 0 or more` + "\n"}},
		{"wrong budget", []string{"soak", "--budget", "10"}, []string{`"10" for "--budget" flag: want a time with its unit`}},
		{"wrong switch", []string{"run", "--force=perhaps"}, []string{`"perhaps" for "--force" flag: want true or false` + "\n"}},
		{"a value in --exec-env", []string{"run", "--exec-env", "PATH,NAME=value"}, []string{`the environment has no variable "NAME=value"; want names only`}},
		{"wrong time", []string{"run", "--max-time", "5"}, []string{`"5" for "--max-time" flag: want a time with its unit`}},
		{"too large", []string{"run", "--reps", "99999999999999999999"}, []string{"flag: want a whole number that is not as large"}},
		{"scenario without a verb", []string{"scenarios", "size-sweep"}, []string{"did you mean scenarios describe size-sweep?"}},
		{"unknown shell", []string{"completion", "tcsh"}, []string{`no completion for "tcsh": want bash, fish, powershell or zsh`}},
		{"no Services", []string{"run", "--services", "0"}, []string{"--services 0: want at least 1"}},
		{"fewer than none", []string{"run", "--endpoints", "-3"}, []string{"--endpoints -3: want at least 1"}},
		{"no repetition", []string{"run", "--reps", "0"}, []string{"--reps 0: want at least 1"}},
		{"two scenarios", []string{"run", "a", "b"}, []string{`takes at most 1 argument (a scenario), got also "b"`}},
		{"unknown scenario", []string{"run", "stedy-churn"}, []string{"stedy-churn", "steady-churn", "size-sweep", "cold-start"}},
		{"scenario file", []string{"run", badScenario}, []string{"scenario.yaml:2", "speed"}},
		{"set", []string{"run", "--set", "shape.servces=3"}, []string{"shape.servces"}},
		{"subject", []string{"run", "--subjects", "synclab/iptables-nft,cilium"},
			[]string{`"cilium" is not known`, "synclab/iptables-legacy"}},
		{"no subject", []string{"run", "--subjects", ""}, []string{`--subjects "": want at least one`}},
		{"no subject to compare", []string{"compare", "--subjects", ""}, []string{`--subjects "": want at least one`}},
		{"rates twice", []string{"plan", "--services", "5", "--churn", "1", "--churn-from", "x"}, []string{"--churn and --churn-from exclude each other"}},
		{"clusters twice", []string{"plan", "-f", "x", "--kubeconfig", "y", "--churn", "1"}, []string{"--filename and --kubeconfig exclude each other"}},
		{"three at once", []string{"run", "--reps", "3", "--precision", "5%", "--quick"}, []string{"--precision, --quick and --reps exclude one another"}},
		{"no subjects to move", []string{"migrate"}, []string{"missing: --from and --to"}},
		{"subject twice", []string{"run", "--subjects", "synclab/iptables-nft,synclab/iptables-nft"}, []string{"twice"}},
		{"subjects of one name", []string{"run", "--subjects", "exec:mine=/bin/a,exec:mine=/bin/b"}, []string{"exec:mine is given twice"}},
		{"proxy configuration", []string{"run", "--strict", "--proxy-config", badConfig}, []string{"proxy.yaml:3: modus: unknown field"}},
		{"configuration at a URL", []string{"run", "--proxy-config", "https://example.com/a.yaml"}, []string{"https://example.com/a.yaml is a URL: download it first"}},
		{"no such manifest", []string{"run", "-f", filepath.Join(dir, "none.yaml")}, []string{"none.yaml"}},
		{"generated and read", []string{"run", "-f", manifest, "--services", "3"}, []string{"--services", "-f"}},
		{"rules of nothing", []string{"rules"}, []string{"-f FILE"}},
		{"rules of both", []string{"rules", "steady-churn", "-f", manifest}, []string{"exclude each other"}},
		{"family", []string{"rules", "-f", manifest, "--family", "ipx"}, []string{`--family "ipx": want IPv4 or IPv6`}},
		{"describe nothing", []string{"scenarios", "describe"}, []string{"missing argument: a scenario"}},
		{"format", []string{"version", "-o", "xml"}, []string{"want table, json, yaml"}},
		{"argument", []string{"version", "now"}, []string{`takes no argument, got "now"`}},
		{"export as data of another command", []string{"version", "-o", "openmetrics"}, []string{"want table, json, yaml"}},
		{"report of a broken run", []string{"report", brokenRun}, []string{"run.json:2: unexpected end of JSON input"}},
		{"report of no run", []string{"report", dir}, []string{dir + " is not the folder of a run"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, stdout, stderr := invoke(t, c.args...)
			if status != exitUsage {
				t.Errorf("exit status %d; want %d", status, exitUsage)
			}
			if stdout != "" {
				t.Errorf("stdout: %s", stdout)
			}
			for _, part := range c.want {
				if !strings.Contains(stderr, part) {
					t.Errorf("stderr lacks %q:\n%s", part, stderr)
				}
			}
		})
	}
}

// Every command that reads objects refuses an input without Services, most often of a failed kubectl, and a URL.
func TestNothingToRead(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.yaml")
	slice := filepath.Join(filepath.Dir(empty), "slice.yaml")
	if err := errors.Join(os.WriteFile(empty, nil, 0o600), os.WriteFile(slice, []byte("apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: a}\naddressType: IPv4\nendpoints: []\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	needed := map[string][]string{
		"plan":    {"--churn", "1"},
		"migrate": {"--from", "synclab/iptables-legacy", "--to", "synclab/iptables-nft"},
		"serve":   {"--listen", "127.0.0.1:0"},
		"inspect": {"../../bench/verify/inspect/testdata/nft.txt"},
	}
	read := 0
	for _, cmd := range newRoot(streams{strings.NewReader(""), &bytes.Buffer{}, &bytes.Buffer{}}).Commands() {
		if cmd.Flags().Lookup("filename") == nil || cmd.Hidden {
			continue
		}
		if cmd.Flags().Lookup("strict") == nil {
			t.Errorf("%s lacks --strict", cmd.Name())
		}
		read++
		for file, want := range map[string]string{
			empty: "found no Kubernetes object", slice: "found 1 EndpointSlice", "https://example.com/dump.yaml": "is a URL: download it first",
		} {
			status, stdout, stderr := invoke(t, append([]string{cmd.Name(), "-f", file}, needed[cmd.Name()]...)...)
			if status != exitUsage || stdout != "" || !strings.Contains(stderr, want) {
				t.Errorf("%s -f %s: status %d, stdout %q, stderr %q; want %d and %q", cmd.Name(), file, status, stdout, stderr, exitUsage, want)
			}
		}
	}
	if read < 6 {
		t.Errorf("%d commands read objects; want at least 6", read)
	}
}

// mostFlags bounds the flags of a first help screen, --help and --help-all among them.
const mostFlags = 18

// Every command has a description and examples with known commands and flags.
func TestHelp(t *testing.T) {
	root := newRoot(streams{strings.NewReader(""), &bytes.Buffer{}, &bytes.Buffer{}})
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			if !sub.Hidden {
				visit(sub)
			}
		}
		path := strings.Fields(cmd.CommandPath())[1:]
		status, stdout, stderr := invoke(t, append(path, "--help")...)
		if strings.Contains(stdout, "Additional Commands:") {
			t.Errorf("commands without a group: list them in commandGroups:\n%s", stdout)
		}
		if status != exitDone || stderr != "" {
			t.Errorf("%s --help: status %d, stderr %q", cmd.CommandPath(), status, stderr)
		}
		if cmd.Short == "" || !strings.Contains(stdout, "Usage:") || !strings.Contains(stdout, "Examples:") {
			t.Errorf("%s --help lacks a description, a usage line or examples:\n%s", cmd.CommandPath(), stdout)
		}
		if n := len(regexp.MustCompile(`(?m)^ +(-\w, )?--\w`).FindAllString(stdout, -1)); n > mostFlags {
			t.Errorf("%s --help lists %d flags, want at most %d: call moreFlags for those that few need", cmd.CommandPath(), n, mostFlags)
		}
		checkExamples(t, root, cmd.Example)
	}
	visit(root)
}

// checkExamples looks up the command and the flags of each example line.
func checkExamples(t *testing.T, root *cobra.Command, examples string) {
	t.Helper()
	for _, line := range strings.Split(examples, "\n") {
		line, _, _ = strings.Cut(line, "#")
		line, _, _ = strings.Cut(line, ">")
		_, call, ok := strings.Cut(line, "synclab ")
		if !ok {
			t.Errorf("example without synclab: %q", line)
			continue
		}
		cmd, rest, err := root.Find(strings.Fields(call))
		if err != nil || cmd == root {
			t.Errorf("example %q: no such command (%v)", line, err)
			continue
		}
		if err := cmd.ParseFlags(rest); err != nil {
			t.Errorf("example %q: %v", line, err)
		}
	}
}

func TestScenariosList(t *testing.T) {
	status, stdout, stderr := invoke(t, "scenarios", "-o", "json")
	if status != exitDone {
		t.Fatal(stderr)
	}
	var heads []scenarioHead
	if err := json.Unmarshal([]byte(stdout), &heads); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(heads, func(h scenarioHead) bool { return h.Name == defaultScenario })
	if i < 0 || heads[i].Cells != 1 || heads[i].Services < 1 || heads[i].Description == "" {
		t.Errorf("%s is not in the list, or differs:\n%s", defaultScenario, stdout)
	}
	_, table, _ := invoke(t, "scenarios", "list")
	for _, h := range heads {
		if !strings.Contains(table, "\n"+h.Name+" ") {
			t.Errorf("the table lacks %s:\n%s", h.Name, table)
		}
	}
}

// The output of describe -o yaml is a scenario file: run reads it as the same scenario.
func TestScenariosDescribe(t *testing.T) {
	args := []string{"scenarios", "describe", "size-sweep", "--services", "2000", "--set", "steps.churn.rate=7", "-o"}
	_, text, stderr := invoke(t, append(args, "yaml")...)
	path := filepath.Join(t.TempDir(), "copy.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := scenarios.Load(path, nil, scenarios.Sizes{})
	if err != nil {
		t.Fatalf("%v; describe said: %s%s", err, text, stderr)
	}
	if s.Shape.Services != 2000 || s.Steps[3].Churn.Rate != 7 {
		t.Errorf("services %d, rate %v; want what the flags set", s.Shape.Services, s.Steps[3].Churn.Rate)
	}
	_, asJSON, _ := invoke(t, append(args, "json")...)
	var fromJSON, fromYAML any
	if err := errors.Join(json.Unmarshal([]byte(asJSON), &fromJSON), yaml.Unmarshal([]byte(text), &fromYAML)); err != nil {
		t.Fatal(err)
	}
	if a, b := mustJSON(t, fromJSON), mustJSON(t, fromYAML); a != b {
		t.Errorf("JSON and YAML differ:\n%s\n%s", a, b)
	}
	_, table, _ := invoke(t, append(args, "table")...)
	for _, part := range []string{"shape.services = 100, ", ", 2000\n", "churn", "rate: 7", "2000 Services"} {
		if !strings.Contains(table, part) {
			t.Errorf("the table lacks %q:\n%s", part, table)
		}
	}
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestVersion(t *testing.T) {
	for _, format := range terminal.Formats[1:] {
		status, stdout, _ := invoke(t, "version", "-o", format)
		var v buildVersion
		if err := yaml.UnmarshalStrict([]byte(stdout), &v); err != nil || status != exitDone || v.Go == "" || v.Synclab == "" {
			t.Errorf("version -o %s: status %d, %v:\n%s", format, status, err, stdout)
		}
	}
}

// The shell calls `synclab __complete …`; each line is a word, a tab, and its meaning.
func TestCompletion(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, name := range []string{"before", "after"} {
		if err := errors.Join(os.MkdirAll(filepath.Join(raw.RunsFolder, name), 0o700), os.WriteFile(filepath.Join(raw.RunsFolder, name, "run.json"), []byte("{}"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"run", ""}, "size-sweep"},
		{[]string{"scenarios", "describe", "size"}, "size-sweep"},
		{[]string{"run", "--subjects", ""}, "synclab/iptables-legacy"},
		{[]string{"run", "--subjects", "synclab/iptables-legacy,"}, "synclab/iptables-legacy,synclab/iptables-nft"},
		{[]string{"version", "-o", ""}, "yaml"},
		{[]string{"rules", "--family", ""}, "IPv6"},
		{[]string{"report", ""}, "runs/before"},
		{[]string{"diff", "runs/before", "runs/a"}, "runs/after"},
		{[]string{"diff", "--threshold", ""}, "full_sync="},
		{[]string{"run", "--kernel", ""}, "host"},
	} {
		_, stdout, _ := invoke(t, append([]string{"__complete"}, c.args...)...)
		offered := strings.FieldsFunc(stdout, func(r rune) bool { return r == '\n' || r == '\t' })
		if !slices.Contains(offered, c.want) {
			t.Errorf("%q is not offered after %q:\n%s", c.want, c.args, stdout)
		}
	}
}

func TestExitStatus(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	failed := func(script string) *exec.ExitError {
		var exit *exec.ExitError
		if err := exec.Command("sh", "-c", script).Run(); !errors.As(err, &exit) {
			t.Fatalf("sh -c %q: %v", script, err)
		}
		return exit
	}
	worker := &netns.WorkerError{Status: 3}
	for _, c := range []struct {
		name string
		ctx  context.Context
		err  error
		want int
		said string // part of the output; empty: no output
	}{
		{"done", t.Context(), nil, exitDone, ""},
		{"done just before the signal", ended, nil, exitDone, ""},
		{"failed", t.Context(), errors.New("restore: exit status 4"), exitFailed, "restore: exit status 4"},
		{"usage", t.Context(), badInput(errors.New("x.yaml:1: name: missing")), exitUsage, "x.yaml:1: name: missing"},
		{"interrupted", ended, context.Canceled, exitInterrupted, "interrupted"},
		// Only a worker prints its own failure, unless it was killed.
		{"worker failed", t.Context(), worker, 3, ""},
		{"worker failed in a run", t.Context(), errors.Join(fmt.Errorf("repetition 1: %w", worker)), 3, ""},
		{"worker killed", t.Context(), &netns.WorkerError{Signal: syscall.SIGKILL}, 137, "signal: killed"},
		{"worker failed since the disk is full", t.Context(), errors.Join(worker, errors.New("no space left")), 3, "no space left"},
		{"tool failed", t.Context(), fmt.Errorf("go build: %w\n\tGOPROXY=off", failed("exit 3")), exitFailed, "GOPROXY=off"},
		{"tool killed", t.Context(), fmt.Errorf("go build: %w", failed("kill -9 $$")), exitFailed, "go build: signal: killed"},
	} {
		var stderr bytes.Buffer
		if got := exitStatus(c.ctx, &stderr, c.err); got != c.want {
			t.Errorf("%s: exit status %d; want %d", c.name, got, c.want)
		}
		if silent := c.said == ""; silent != (stderr.Len() == 0) || !strings.Contains(stderr.String(), c.said) {
			t.Errorf("%s: it says %q; want %q", c.name, stderr.String(), c.said)
		}
	}
}

func TestNewestRun(t *testing.T) {
	root := t.TempDir()
	if _, err := newestRun(root); err == nil {
		t.Error("a run was found in an empty folder")
	}
	hour := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	for name, written := range map[string]time.Time{"a": hour, "b": hour.Add(2 * time.Hour), "c": hour.Add(time.Hour)} {
		file := filepath.Join(root, name, "run.json")
		if err := errors.Join(os.Mkdir(filepath.Dir(file), 0o700), os.WriteFile(file, []byte("{}"), 0o600), os.Chtimes(file, written, written)); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := newestRun(root); err != nil || got != filepath.Join(root, "b") {
		t.Errorf("newest run = %s, %v; want b", got, err)
	}
}

// Entries of PATH that depend on the working directory are removed.
func TestAbsolutePath(t *testing.T) {
	for path, want := range map[string]string{"/bin:/usr/bin": "/bin:/usr/bin", ".:/bin::tools:/usr/bin:": "/bin:/usr/bin", ".": "", "": ""} {
		if got := absolute(path); got != want {
			t.Errorf("%q: %q, want %q", path, got, want)
		}
	}
}

// --version prints what the command version prints, and help of a command what its --help prints.
func TestVersionAndHelp(t *testing.T) {
	for _, same := range [][2][]string{
		{{"--version"}, {"version"}}, {{"help", "rules"}, {"rules", "--help"}}, {{"help"}, {"--help"}}, {{"help", "scenarios", "list"}, {"scenarios", "list", "--help"}},
	} {
		status, got, stderr := invoke(t, same[0]...)
		if _, want, _ := invoke(t, same[1]...); status != exitDone || got != want || got == "" {
			t.Errorf("%q: status %d, %q %s; want %q", same[0], status, got, stderr, want)
		}
	}
}
