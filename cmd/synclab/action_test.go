package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// workflowStep has the fields of a step that the tests look at.
type workflowStep struct {
	Run  string            `json:"run"`
	Uses string            `json:"uses"`
	Env  map[string]string `json:"env"`
}

// TestAction: no input is a part of a script, each is used, and actions of others are pinned by their commit.
func TestAction(t *testing.T) {
	var action struct {
		Inputs map[string]map[string]any `json:"inputs"`
		Runs   struct {
			Steps []workflowStep `json:"steps"`
		} `json:"runs"`
	}
	var workflow struct {
		Jobs map[string]struct {
			Steps []workflowStep `json:"steps"`
		} `json:"jobs"`
	}
	texts := map[string]string{}
	for file, into := range map[string]any{"../../action.yml": &action, "../../deploy/github/kube-proxy.yaml": &workflow} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(text, into); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		texts[file] = string(text)
	}
	steps := slices.Concat(action.Runs.Steps, workflow.Jobs["compare"].Steps)
	pinned := regexp.MustCompile(`^(\./.*|[\w-]+/[\w-]+@[0-9a-f]{40})$`)
	for _, step := range steps {
		if strings.Contains(step.Run, "${{") {
			t.Errorf("an expression in a script: %s", step.Run)
		}
		if step.Uses != "" && !pinned.MatchString(step.Uses) {
			t.Errorf("%s: not pinned by its commit", step.Uses)
		}
	}
	for input := range action.Inputs {
		if !strings.Contains(texts["../../action.yml"], "inputs."+input+" ") {
			t.Errorf("input %s is not used", input)
		}
	}
	if len(steps) != 6 || len(action.Inputs) < 8 {
		t.Errorf("%d steps and %d inputs: the test overlooks some", len(steps), len(action.Inputs))
	}
}

// fakeGo stands for go build: it makes a synclab that writes its arguments into a file, one a line, and that finds
// something.
const fakeGo = `#!/bin/sh
while [ $# -gt 0 ]; do [ "$1" = -o ] && out=$2; shift; done
cat >"$out" <<'END'
#!/bin/sh
echo "$(basename "$0")" "$PWD" >>"$CALLS"
printf '  %s\n' "$@" >>"$CALLS"
echo "## the table"
exit 1
END
chmod +x "$out"
`

// TestActionScript: inputs are arguments, whatever they contain, and the status is that of the review.
func TestActionScript(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("needs bash")
	}
	dir := t.TempDir()
	bin := filepath.Join(dir, "bin")
	for _, folder := range []string{bin, filepath.Join(dir, "base $(touch owned)"), filepath.Join(dir, "head")} {
		if err := os.Mkdir(folder, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"go": fakeGo, "sudo": "#!/bin/sh\nexit 1\n", "iptables-restore": "", "nft": ""} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	script, err := filepath.Abs("../../deploy/github/compare.sh")
	if err != nil {
		t.Fatal(err)
	}
	run := func(env ...string) (calls, out string, status int) {
		t.Helper()
		for _, file := range []string{"calls", "summary", "outputs"} {
			if err := os.WriteFile(filepath.Join(dir, file), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.Command("bash", script)
		cmd.Dir = dir
		cmd.Env = append([]string{"PATH=" + bin + ":" + os.Getenv("PATH") + ":/usr/sbin:/sbin", "HOME=" + dir, "RUNNER_TEMP=" + dir, "CALLS=" + filepath.Join(dir, "calls"),
			"GITHUB_STEP_SUMMARY=" + filepath.Join(dir, "summary"), "GITHUB_OUTPUT=" + filepath.Join(dir, "outputs"), "BASE=base $(touch owned)", "HEAD=head"}, env...)
		text, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		made, err := os.ReadFile(filepath.Join(dir, "calls"))
		if err != nil {
			t.Fatal(err)
		}
		return string(made), string(text), cmd.ProcessState.ExitCode()
	}
	calls, out, status := run("MEASURE=kube-proxy", "MATRIX=--help; touch owned", "MODES=`touch owned`", "BUDGET=2m --force", "MAX_SLOWER=5%")
	if status != exitFailed {
		t.Fatalf("status %d\n%s", status, out)
	}
	for _, want := range []string{"synclab " + dir + "\n  pr\n  --of=kube-proxy\n  --base=" + dir + "/base $(touch owned)\n  --head=" + dir + "/head\n",
		"\n  --modes=`touch owned`\n  --matrix=--help; touch owned\n  --budget=2m --force\n  --max-slower=5%\n  --out=", "\n  --format=github\n"} {
		if !strings.Contains(calls, want) {
			t.Errorf("%q is missing in the calls:\n%s", want, calls)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "owned")); err == nil {
		t.Error("an input was run")
	}
	for file, want := range map[string]string{"summary": "## the table\n", "outputs": "table="} {
		if text, err := os.ReadFile(filepath.Join(dir, file)); err != nil || !strings.HasPrefix(string(text), want) {
			t.Errorf("%s: %q, %v", file, text, err)
		}
	}
	if calls, out, status = run("MEASURE=synclab"); status != exitFailed || !strings.Contains(calls, "--of=synclab\n") || !strings.Contains(calls, "--modes=iptables-legacy,nftables\n") {
		t.Errorf("status %d\n%s%s", status, calls, out)
	}
	if calls, out, status = run("MEASURE=cilium"); status != exitUsage || calls != "" || !strings.Contains(out, "want kube-proxy or synclab") {
		t.Errorf("status %d\n%s%s", status, calls, out)
	}
	if _, out, status = run("MEASURE=synclab", "HEAD=absent"); status != exitUsage || !strings.Contains(out, "no folder absent") {
		t.Errorf("status %d\n%s", status, out)
	}
}
