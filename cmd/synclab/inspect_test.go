package main

import (
	"encoding/json"
	"strings"
	"testing"

	"synclab/bench/verify/inspect"
)

// The exit status and the output of inspect, in each format.
func TestInspect(t *testing.T) {
	const broken, good, cluster = "../../bench/verify/inspect/testdata/broken.txt", "../../bench/verify/inspect/testdata/nft.json", "../../bench/verify/inspect/testdata/cluster.yaml"
	for _, c := range []struct {
		args   string
		status int
		out    string // in stdout, or with an error in stderr
	}{
		{good, exitDone, "1.30 to 1.35: it has the chain mark-for-masquerade"},
		{good + " -f " + cluster, exitDone, "in sync with the API: 2 Services"},
		{broken, exitFailed, "rules jump to chains that do not exist (1)"},
		{broken + " --format github", exitFailed, "| kube-proxy | IPv4 iptables |"},
		{broken + " --anonymize -f " + cluster + " --node node-7", exitFailed, "Service ns-1/svc-"},
		{broken + " -f " + cluster + " --node node-8", exitUsage, `"node-8"; there are: node-7`},
		{broken + " --node node-7", exitUsage, "--node needs -f"},
		{cluster, exitUsage, "cluster.yaml: no rules: want the output of iptables-save"},
		{"no-such-file", exitUsage, "no-such-file"},
		{"", exitUsage, "missing argument: FILE, or - for stdin"},
	} {
		status, out, stderr := invoke(t, append([]string{"inspect"}, strings.Fields(c.args)...)...)
		if status == exitUsage {
			out = stderr
		}
		if status != c.status || !strings.Contains(out, c.out) {
			t.Errorf("%s: status %d, want %d and %q: %s%s", c.args, status, c.status, c.out, out, stderr)
		}
	}
	var r inspect.Report
	if _, out, _ := invoke(t, "inspect", broken, "-o", "json"); json.Unmarshal([]byte(out), &r) != nil || len(r.Owners) == 0 || !r.Broken() {
		t.Errorf("JSON: %+v: %s", r, out)
	}
}
