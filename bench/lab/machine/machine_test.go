package machine

import (
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// On any machine, a check that is not ok has details, and a failed check has a name.
func TestExamine(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	seen := map[string]bool{}
	for _, c := range Examine(t.Context()) {
		t.Logf("%-24s %-6s %s | %s", c.Name, c.Status, c.Detail, c.Remedy)
		if c.Name == "" || c.Detail == "" || seen[c.Name] {
			t.Errorf("check %+v: without a name, or without detail", c)
		}
		seen[c.Name] = true
		if c.Status == Absent && c.Remedy == "" {
			t.Errorf("%s is absent, and no remedy is given", c.Name)
		}
	}
	for _, name := range []string{"kernel", "namespaces", "iptables-legacy", "iptables-nft", "iptables-legacy-restore",
		"ip6tables-nft-restore", "conntrack", "clock"} {
		if !seen[name] {
			t.Errorf("%s was not checked", name)
		}
	}
}

// A match that does not exist is found among existing ones.
func TestExamineNamesWhatIsMissing(t *testing.T) {
	path, err := exec.LookPath("iptables-legacy-restore")
	if err != nil {
		t.Skip(err)
	}
	good := feature{name: "comment", table: "nat", rule: "-A OUTPUT -m comment --comment x", module: "xt_comment"}
	bad := feature{name: "wishes", table: "nat", rule: "-A OUTPUT -m wishes --granted", module: "xt_wishes"}
	for _, test := range []struct {
		without string
		want    Status
	}{{"", Fail}, {"wishing", Warn}} {
		bad.without = test.without
		c := examineEach(t.Context(), Check{Name: "x"}, path, []feature{good, bad})
		if c.Status != test.want || !strings.Contains(c.Detail, "wishes") || !strings.Contains(c.Remedy, "xt_wishes") {
			t.Errorf("check %+v; want %s, and wishes in the detail", c, test.want)
		}
	}
	if c := examineEach(t.Context(), Check{Name: "x"}, path, []feature{bad}); c.Status != Fail || !strings.Contains(c.Detail, "accepts no rule") {
		t.Errorf("check %+v; want %s: accepts no rule", c, Fail)
	}
}

func TestDetect(t *testing.T) {
	v := DetectVersions(t.Context())
	if !strings.HasPrefix(v.Go, runtime.Version()) || v.Kernel == "" || v.Synclab == "" {
		t.Errorf("versions: %+v", v)
	}
	if v.IPTablesLegacy != "" && !strings.Contains(v.IPTablesLegacy, "iptables v") {
		t.Errorf("iptables-legacy: %q", v.IPTablesLegacy)
	}
	m := DetectMachine()
	if m.OS == "" || m.CPU == "" || m.CPUs < 1 || m.MemoryBytes == 0 {
		t.Errorf("machine: %+v", m)
	}
}

func TestMemory(t *testing.T) {
	if err := ResetPeakRSS(); err != nil {
		t.Fatal(err)
	}
	before, err := ReadPeakRSS()
	if err != nil {
		t.Fatal(err)
	}
	const size = 64 << 20
	// Not from the Go heap, which may have free resident memory.
	block, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(block)
	for i := 0; i < len(block); i += 4096 {
		block[i] = 1
	}
	after, err := ReadPeakRSS()
	if err != nil || after < before+size/2 {
		t.Errorf("peak RSS %d, then %d with %d bytes more (%v)", before, after, size, err)
	}
	if n, err := ReadKernelMemory(); err != nil || n == 0 {
		t.Errorf("kernel memory: %d, %v", n, err)
	}
}
