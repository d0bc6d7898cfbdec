package proxier

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench/lab/netns"
	"synclab/internal/seedstest"
	"synclab/proxier/iptables"
	"synclab/proxier/iptables/rule"
)

// realSave returns the rules of this namespace's tables, as the tool prints them.
func realSave(t *testing.T, variant iptables.Variant, family corev1.IPFamily) []string {
	t.Helper()
	path, err := iptables.FindBinary(iptables.Binary(variant, family, "save"))
	if err != nil {
		t.Skip(err)
	}
	out, err := exec.Command(path).Output()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rule.ParseTables(family, out); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "-A ") {
			lines = append(lines, strings.TrimSuffix(line, "\n"))
		}
	}
	return lines
}

// Package rule prints the proxier's rules as iptables-save does, byte for byte.
func TestRealSave(t *testing.T) {
	eachSubjectInKernel(t, func(t *testing.T, family corev1.IPFamily, w subject, start func(func(*Options)) *engine) {
		if w.backend != Iptables {
			return // nothing that iptables-save prints
		}
		c := newRandomCluster(seedstest.Of(t), family)
		e := start(func(o *Options) { o.Machine.Accounting = true })
		for range 300 {
			c.step(e)
		}
		if err := e.sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		lines := realSave(t, w.variant, family)
		if len(lines) < 100 {
			t.Fatalf("only %d rules", len(lines))
		}
		for _, line := range lines {
			if chain, r, err := rule.Parse(family, line); err != nil {
				t.Error(err)
			} else if got := r.Line(chain); got != line {
				t.Errorf("printed %s\nparsed  %s", got, line)
			}
		}
	})
}

// Package rule prints its samples as iptables-save does. The tools refuse samples of modules that the kernel lacks.
func TestRealSaveOfSamples(t *testing.T) {
	for _, variant := range []iptables.Variant{iptables.Legacy, iptables.Nft} {
		for family, name := range map[corev1.IPFamily]string{corev1.IPv4Protocol: "ipv4", corev1.IPv6Protocol: "ipv6"} {
			t.Run(string(variant)+"/"+name, func(t *testing.T) {
				netns.Fresh(t)
				samples, err := os.ReadFile("iptables/rule/testdata/" + name + ".txt")
				if err != nil {
					t.Fatal(err)
				}
				path, err := iptables.FindBinary(iptables.Binary(variant, family, "restore"))
				if err != nil {
					t.Skip(err)
				}
				written := 0
				for line := range strings.Lines(string(samples)) {
					line = strings.TrimSpace(line)
					if line == "" || line[0] == '#' {
						continue
					}
					if !restored(path, family, line) {
						t.Logf("refused: %s", line)
						continue
					}
					written++
					lines := realSave(t, variant, family)
					if len(lines) != 1 || lines[0] != line {
						t.Errorf("iptables-save %q\nsample        %q", lines, line)
					}
				}
				if written < 10 {
					t.Errorf("only %d samples were accepted", written)
				}
			})
		}
	}
}

// restored writes one rule in the first table that accepts it, and removes all others.
func restored(restore string, family corev1.IPFamily, line string) bool {
	chain, r, err := rule.Parse(family, line)
	if err != nil {
		return false
	}
	for _, table := range []string{"nat", "filter", "mangle", "raw"} {
		var b strings.Builder
		for _, name := range []string{"nat", "filter", "mangle", "raw"} {
			fmt.Fprintf(&b, "*%s\n", name)
			if name == table {
				declare(&b, chain)
				if r.Target.Chain != chain {
					declare(&b, r.Target.Chain)
				}
				fmt.Fprintf(&b, "%s\n", line)
			}
			b.WriteString("COMMIT\n")
		}
		cmd := exec.Command(restore)
		cmd.Stdin = strings.NewReader(b.String())
		if cmd.Run() == nil {
			return true
		}
	}
	return false
}

func declare(b *strings.Builder, chain string) {
	switch chain {
	case "", "PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING":
	default:
		fmt.Fprintf(b, ":%s - [0:0]\n", chain)
	}
}
