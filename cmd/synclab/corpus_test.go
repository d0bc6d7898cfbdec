package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"synclab/bench/verify/conform"
)

var updateCorpus = flag.Bool("update-corpus", false, "rewrite testdata/corpus.txt, the outcomes of the corpus")

// The corpora of inputs, as people have them. What their readers make of each is tested beside them.
const (
	corpusFolder = "../../sim/manifests/testdata/corpus"
	configFolder = "../../proxier/config/testdata/corpus"
)

// comparedInputs go through compare with kube-proxy as well: one for each way in which an input may differ from a
// generated cluster.
var comparedInputs = []string{
	"dual-stack.yaml", "dump.yaml", "endpoints.yaml", "health-port-shared.yaml", "ipv6.yaml", "node-addresses.yaml", "redacted-numbered.yaml",
	"slice-ports.yaml", "support-bundle", "tcp-only.yaml", "two-slices.yaml", "workloads.yaml",
}

// atOnce is how many programs a test runs at once that wait for most of their time.
const atOnce = 4

// TestCorpusOfObjects takes each input through the commands. testdata/corpus.txt has the outcomes: the status, and the
// lines on what was left out.
func TestCorpusOfObjects(t *testing.T) {
	skipShort(t)
	dir, err := filepath.Abs(corpusFolder)
	if err != nil {
		t.Fatal(err)
	}
	data, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	scenario, golden := filepath.Join(data, "corpus.yaml"), filepath.Join(data, "corpus.txt")
	t.Chdir(t.TempDir())
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) < 55 {
		t.Fatalf("%d inputs, %v", len(entries), err)
	}
	_, lacking := conform.Variants()
	var lackingNamespace atomic.Pointer[string]
	outcomes := make([]strings.Builder, len(entries))
	var inputs errgroup.Group
	inputs.SetLimit(atOnce)
	for i, entry := range entries {
		if entry.Name() == "outcomes.txt" {
			continue
		}
		inputs.Go(func() error {
			input, got := filepath.Join(dir, entry.Name()), &outcomes[i]
			fmt.Fprintf(got, "%s\n", entry.Name())
			try := func(args ...string) int {
				status, _, stderr := invoke(t, append(args, "-f", input)...)
				if strings.Contains(stderr, "not available") && os.Getenv("SYNCLAB_REQUIRE_NAMESPACE") == "" {
					lackingNamespace.Store(&stderr)
				}
				for _, leak := range []string{"goroutine ", "panic:", "interface {}", "unmarshal", "context deadline exceeded"} {
					if strings.Contains(stderr, leak) {
						t.Errorf("%s, %s: %q in\n%s", args[0], entry.Name(), leak, stderr)
					}
				}
				fmt.Fprintf(got, "\t%s: %d%s\n", args[0], status, remarks(stderr, dir))
				return status
			}
			if try("rules") != exitDone {
				return nil // the others read the input in the same way: see TestNothingToRead
			}
			try("plan", "--churn", "1", "--subjects", "synclab/nftables", "--dry-run")
			try("run", scenario, "--reps", "1", "--subjects", "synclab/iptables-legacy", "--out", filepath.Join(t.TempDir(), "run"))
			if lacking == nil {
				try("conform", "--variant", "legacy")
			}
			if lacking == nil && slices.Contains(comparedInputs, entry.Name()) {
				try("compare", scenario, "--reps", "1", "--subjects", "kube-proxy/iptables-legacy,synclab/nftables", "--out", filepath.Join(t.TempDir(), "compare"))
			}
			return nil
		})
	}
	_ = inputs.Wait()
	var got strings.Builder
	for i := range outcomes {
		got.WriteString(outcomes[i].String())
	}
	if why := lackingNamespace.Load(); why != nil {
		t.Skip(*why)
	}
	if lacking != nil {
		t.Skip("without kube-proxy the outcomes are not whole: ", lacking)
	}
	compareOutcomes(t, golden, got.String())
}

func compareOutcomes(t *testing.T, golden, got string) {
	t.Helper()
	if *updateCorpus {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestCorpusOfConfigurations prints rules with each configuration. testdata/corpus-configurations.txt has the outcomes.
func TestCorpusOfConfigurations(t *testing.T) {
	entries, err := os.ReadDir(configFolder)
	if err != nil || len(entries) < 30 {
		t.Fatalf("%d inputs, %v", len(entries), err)
	}
	var got strings.Builder
	for _, entry := range entries {
		if filepath.Ext(entry.Name()) == ".want" {
			continue
		}
		file := filepath.Join(configFolder, entry.Name())
		status, stdout, stderr := invoke(t, "rules", "-f", filepath.Join(corpusFolder, "dump.yaml"), "--family", "IPv4", "--proxy-config", file)
		if (status == exitDone) != strings.Contains(stdout, "KUBE-SERVICES") {
			t.Errorf("%s: status %d, rules:\n%s", entry.Name(), status, stdout)
		}
		fmt.Fprintf(&got, "%s: %d%s\n", entry.Name(), status, remarks(stderr, configFolder))
	}
	compareOutcomes(t, filepath.Join("testdata", "corpus-configurations.txt"), got.String())
}

// remarks are the lines on steps that were left out or made smaller, and the first line of an error.
func remarks(stderr, dir string) string {
	var b strings.Builder
	for line := range strings.Lines(stderr) {
		line = strings.TrimSpace(strings.ReplaceAll(line, dir+"/", ""))
		left := strings.HasPrefix(line, "left out: step") || strings.HasPrefix(line, "step ")
		if (left || strings.HasPrefix(line, "synclab: ")) && !strings.Contains(b.String(), line) {
			b.WriteString("; " + line)
		}
	}
	return b.String()
}
