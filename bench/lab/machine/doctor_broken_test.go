package machine

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench/lab/netns"
	"synclab/bench/raw"
	"synclab/proxier/iptables"
)

// Each check of doctor fails when the checked part does not work.
func TestExamineBroken(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	nowhere := filepath.Join(t.TempDir(), "nothing")
	jumps := filepath.Join(t.TempDir(), "jumps")
	if err := os.WriteFile(jumps, []byte("65536\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	fakes := t.TempDir()
	t.Setenv("PATH", fakes)
	fake := func(name, script string) {
		if err := os.WriteFile(filepath.Join(fakes, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	fake("iptables-legacy", "echo 'iptables v1.8.9 (nf_tables)'")
	fake("iptables-nft", "echo 'iptables v1.8.9 (legacy)'")
	for _, tool := range []string{"iptables", "nft", "ip", "iptables-legacy-restore", "iptables-nft-restore"} {
		fake(tool, "exit 1")
	}
	found := map[string]Check{}
	for _, c := range []Check{
		examineNamespaces(false, fmt.Errorf("user namespaces: %w", netns.ErrUnavailable)),
		examineVariant(t.Context(), iptables.Legacy), examineVariant(t.Context(), iptables.Nft), examineDefault(t.Context()), examineNft(t.Context()),
		examineRules(t.Context(), iptables.Legacy, corev1.IPv4Protocol), examineRules(t.Context(), iptables.Nft, corev1.IPv4Protocol),
		examineVeth(t.Context()), examineConntrack(nowhere), examineIPv6(nowhere), examineClock(5000), examineResources(raw.Machine{CPUs: 1, MemoryBytes: 8 << 30}),
		examineResources(raw.Machine{CPUs: 4, MemoryBytes: 1 << 30}), examineSendLimit(212992, nil), examineSendLimit(0, errors.New("no socket")),
		examineJumps(jumps)[0],
	} {
		found[c.Name] = c
		if c.Status == OK || c.Detail == "" {
			t.Errorf("%s: %+v", c.Name, c)
		}
	}
	// These have separate tests. The kernel's release is only printed.
	for _, name := range []string{"go", "cache folder", "kube-proxy", "kernel"} {
		found[name] = Check{}
	}
	for _, name := range checkNames(t, "doctor.go") {
		if _, tried := found[name]; !tried {
			t.Errorf("no case breaks check %q", name)
		}
	}
}

// checkNames returns the names of the checks in a file.
func checkNames(t *testing.T, file string) []string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	ast.Inspect(parsed, func(n ast.Node) bool {
		pair, ok := n.(*ast.KeyValueExpr)
		if !ok {
			return true
		}
		if key, ok := pair.Key.(*ast.Ident); ok && key.Name == "Name" {
			if lit, ok := pair.Value.(*ast.BasicLit); ok {
				name, err := strconv.Unquote(lit.Value)
				if err != nil {
					t.Fatal(err)
				}
				names = append(names, name)
			}
		}
		return true
	})
	if len(names) < 10 {
		t.Fatalf("checks %q", names)
	}
	return names
}
