package fault

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench/netns"
	"synclab/proxier/iptables"
)

// FlushTable empties a table (nat, filter, mangle, or all of them), like a program that restores a ruleset without the
// proxier's rules. Rules and user-defined chains disappear in one step. It runs the tool as the proxier's own syncs do,
// in the network namespace of the calling thread.
func FlushTable(ctx context.Context, variant iptables.Variant, family corev1.IPFamily, table string) error {
	tables := []string{table}
	switch table {
	case "nat", "filter", "mangle":
	case "all":
		tables = []string{"nat", "filter", "mangle"}
	default:
		return fmt.Errorf("flush table %q: want nat, filter, mangle or all", table)
	}
	if err := netns.Guard(); err != nil {
		return fmt.Errorf("flush table %s: %w", table, err)
	}
	tool := iptables.Binary(variant, family, "restore")
	path, err := iptables.FindBinary(tool)
	if err != nil {
		return fmt.Errorf("flush table %s: %w", table, err)
	}
	var empty bytes.Buffer
	for _, name := range tables {
		// Without --noflush, this input replaces the table.
		fmt.Fprintf(&empty, "*%s\nCOMMIT\n", name)
	}
	cmd := exec.CommandContext(ctx, path, lockWait(variant)...)
	cmd.Stdin = &empty
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("flush table %s: %s: %w: %s", table, tool, err, strings.TrimSpace(string(out)))
	}
	return nil
}
