package reproduce

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"synclab/bench/lab/shell"
	"synclab/bench/raw"
)

// restore is a payload of iptables-restore for so many Services, as kube-proxy writes it: rules of endpoints have no comment.
func restore(services int) []byte {
	var b bytes.Buffer
	b.WriteString("*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-MARK-MASQ - [0:0]\n")
	name := func(kind string, i int) string { // a hash has letters and the digits from 2 to 7
		return "KUBE-" + kind + "-" + strings.NewReplacer("0", "A", "1", "B", "8", "C", "9", "D").Replace(fmt.Sprintf("%016d", i))
	}
	for i := range services {
		fmt.Fprintf(&b, ":%s - [0:0]\n:%s - [0:0]\n", name("SVC", i), name("SEP", i))
	}
	b.WriteString("-A KUBE-MARK-MASQ -j MARK --or-mark 0x4000\n")
	for i := range services {
		fmt.Fprintf(&b, "-A KUBE-SERVICES -m comment --comment \"default/svc-%d:http cluster IP\" -d 10.0.0.%d -j %s\n", i, i, name("SVC", i))
		fmt.Fprintf(&b, "-A %s -j %s\n-A %s -s 10.1.0.%d -j KUBE-MARK-MASQ\n", name("SVC", i), name("SEP", i), name("SEP", i), i)
	}
	b.WriteString("COMMIT\n")
	return b.Bytes()
}

// The lines of a Service are found, also those that do not name it.
func TestOwners(t *testing.T) {
	lines, owners := readLines(restore(10))
	if owners != 10 {
		t.Fatalf("%d Services, want 10", owners)
	}
	if got, want := string(first(lines, 4, nil)), string(restore(4)); got != want {
		t.Errorf("the first 4 Services:\n%s\nwant\n%s", got, want)
	}
	nft := "add table ip kube-proxy\nadd chain ip kube-proxy service-4AT6LBPK-ns1/svc1/tcp/p80\nadd chain ip kube-proxy service-2ZQ5DJLV-ns2/svc2/tcp/p80\n" +
		"add element ip kube-proxy service-ips { 172.30.0.41 . tcp . 80 : goto service-4AT6LBPK-ns1/svc1/tcp/p80 }\n"
	if lines, owners = readLines([]byte(nft)); owners != 2 || lines[0].owner != -1 || lines[3].owner != lines[1].owner || lines[2].owner == lines[1].owner || lines[1].kind != lines[2].kind {
		t.Errorf("%d Services in %+v; want 2", owners, lines)
	}
}

// A tool that searches all chains for each chain: only the chains remain, of no more Services than it takes.
func TestSmaller(t *testing.T) {
	tool := func(input []byte) (float64, error) {
		text := string(input)
		if !strings.HasPrefix(text, "*nat") || !strings.HasSuffix(text, "COMMIT\n") {
			return 0, fmt.Errorf("line 1 failed")
		}
		chains := float64(strings.Count(text, "\n:"))
		return 0.01 + 1e-5*chains*chains + 1e-5*float64(strings.Count(text, "\n-A")), nil
	}
	note := func(string) {}
	small, text, err := smaller(t.Context(), restore(1000), note, tool)
	if err != nil || small == nil {
		t.Fatal(small, err)
	}
	if small.Services != 256 || small.Of != 1000 || bytes.Contains(text, []byte("\n-A ")) || !bytes.HasPrefix(text, []byte("*nat\n:")) || small.Stopped {
		t.Errorf("%+v:\n%.200s", small, text)
	}
	linear := func(input []byte) (float64, error) { return float64(len(input)), nil }
	if small, _, err := smaller(t.Context(), restore(1000), note, linear); small != nil || err != nil {
		t.Errorf("of a linear tool: %+v, %v; want nothing", small, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	if small, _, err := smaller(ctx, restore(1000), note, tool); err != nil || small == nil || !small.Stopped {
		t.Errorf("without time: %+v, %v; want the input of fewer Services", small, err)
	}
}

// kept writes a run with two kept inputs of a tool.
func kept(t *testing.T, command string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "run")
	w, err := raw.OpenRun(dir, raw.Run{ID: "r"}, false)
	if err != nil {
		t.Fatal(err)
	}
	for i, text := range []string{"before", "slow -m nfacct --nfacct-name ct_state_invalid_dropped_pkts -j DROP"} {
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		fmt.Fprintln(z, text)
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		file := fmt.Sprintf("001-input-%d.gz", i+1)
		if err := w.WriteProfile(file, packed.Bytes()); err != nil {
			t.Fatal(err)
		}
		if err := w.Write(raw.Record{Subject: "s", Rep: 1, Metric: raw.ToolInput, Value: float64(i + 1), Unit: "s", File: file, Method: command}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(raw.StatusComplete, ""); err != nil {
		t.Fatal(err)
	}
	return dir
}

// The script gives the inputs to the tool in their order, in a namespace of its own.
func TestScript(t *testing.T) {
	seen, bin := filepath.Join(t.TempDir(), "seen"), t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "nft"), []byte("#!/bin/sh\necho \"$@\" >>"+seen+"\ncat >>"+seen+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	c, err := Find(kept(t, "nft -f -"), "")
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "out")
	if err := c.Write(out); err != nil {
		t.Fatal(err)
	}
	if _, err := Measure(t.Context(), out, InputFile); err != nil {
		if strings.Contains(err.Error(), "unshare") {
			t.Skip(err)
		}
		t.Fatal(err)
	}
	if text, err := os.ReadFile(seen); err != nil || string(text) != "-f -\nbefore\n-f -\nslow -j DROP\n" {
		t.Errorf("the tool got %q, %v; want both inputs", text, err)
	}
	if err := c.Write(out); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("into a folder with files: %v", err)
	}
}

// What a record says is run only if it is a call that the lab keeps. The texts of a run stay in comments.
func TestHostileRecords(t *testing.T) {
	for _, command := range []string{
		"id >/tmp/x; cat", "nft -f -; id", "nft -f /etc/shadow", "nft -f - -I /tmp", "/tmp/nft -f -", "./nft -f -", "nft  -f -", "nft\n-f -", "nft -f -\nid", "NFT -f -", "sh -c id", "",
		"iptables-restore --modprobe=/tmp/x", "iptables-restore -M /tmp/x", "iptables-restore /etc/shadow", "iptables-restore -n < /etc/shadow", "iptables-restore $(id)", "iptables-restore `id`",
		"iptables-restore -w 5 -W 100000 --noflush --counters --", "ipset restore", "iptables-restore -w5x", "nft -i", "nft -D a=b -f -",
	} {
		if c, err := Find(kept(t, command), ""); err == nil {
			t.Errorf("%q is taken: %+v", command, c)
		}
	}
	for _, command := range []string{"nft -f -", "iptables-restore -w 5 -W 100000 --noflush --counters", "ip6tables-legacy-restore --noflush --wait=5 -T nat"} {
		if _, err := Find(kept(t, command), ""); err != nil {
			t.Errorf("%q: %v", command, err)
		}
	}
	dir := kept(t, "nft -f -")
	path := filepath.Join(dir, raw.RunFile)
	for name, change := range map[string]func(*raw.Run){
		"kernel":     func(r *raw.Run) { r.Versions.Kernel = "6.12\nid" },
		"nft":        func(r *raw.Run) { r.Versions.Nft = "1.0\rid" },
		"kube-proxy": func(r *raw.Run) { r.Versions.KubeProxy = "v1\u202e" },
	} {
		run, err := raw.ReadRunFile(dir)
		if err != nil {
			t.Fatal(err)
		}
		change(&run)
		text, err := json.Marshal(run)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Find(dir, ""); err == nil || !strings.Contains(err.Error(), "control characters") {
			t.Errorf("%s: %v", name, err)
		}
		if err := os.WriteFile(path, []byte("{}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// An input that makes its tool read another file, or run a program, is refused.
func TestHostileInputs(t *testing.T) {
	for _, c := range []struct {
		tool, input string
		good        bool
	}{
		{"nft", "table ip x { include \"/etc/shadow\"; }\n", false},
		{"nft", "include\"/etc/shadow\"", false},
		{"nft", "add table ip x\n\tinclude  '/etc/shadow'\n", false},
		{"nft", "add table ip x;include \\\n \"/etc/shadow\"", false},
		{"nft", "add rule ip kube-proxy services ip daddr 10.0.0.1 comment \"ns/include:http\"\n", true},
		{"nft", "add rule a\x00", false},
		{"iptables-restore", "*nat\n-A X -M /tmp/x -m new\nCOMMIT\n", false},
		{"iptables-restore", "*nat\n-A X --modprobe /tmp/x\n", false},
		{"iptables-restore", "*nat\n-A X --modp=/tmp/x\n", false},
		{"iptables-restore", "*nat\n-A X --mo /tmp/x\n", false},
		{"iptables-restore", "*nat\n-A X \"-M\" /tmp/x\n", false},
		{"iptables-restore", "*nat\n-A X \"--mod\"probe /tmp/x\n", false},
		{"iptables-restore", "*nat\n-A X -vM /tmp/x\n", false},
		{"iptables-restore", "*nat\n-A X -M/tmp/x\n", false},
		{"iptables-restore", "*nat\n[1:2] -A X -m comment --comment \"a/b:c -> 10.0.0.1 -M x\" -m statistic --mode random --probability 0.5 -j MARK --or-mark 0x4000\nCOMMIT\n", true},
		{"iptables-restore", string(restore(20)), true},
		{"iptables-restore", "*nat\n# \"" + strings.Repeat("x", 10_236) + "-A X -M /tmp/x -p tcp\"\nCOMMIT\n", false}, // two lines for the tool
	} {
		if err := checkInput(c.tool, []byte(c.input)); (err == nil) != c.good {
			t.Errorf("%s: %.200q: %v", c.tool, c.input, err)
		}
	}
}

func TestFindNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	w, err := raw.OpenRun(dir, raw.Run{ID: "r"}, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(raw.StatusComplete, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := Find(dir, ""); err == nil || !strings.Contains(err.Error(), "--profile") {
		t.Errorf("of a run without profiles: %v", err)
	}
}

// FuzzCalls: a command line that is taken is that of a known tool, and means the same in a shell as its words.
func FuzzCalls(f *testing.F) {
	for _, line := range []string{"nft -f -", "iptables-restore -w 5 -W 100000 --noflush --counters", "nft -f -;id", "ip6tables-nft-restore -T nat"} {
		f.Add(line, "*nat\n-A X -M /tmp/x\n")
	}
	f.Fuzz(func(t *testing.T, line, input string) {
		if words, err := parseCall(line); err == nil && (shell.Line(words...) != line || !tools.MatchString(words[0])) {
			t.Errorf("%q is taken as %q", line, words)
		}
		if checkInput("iptables-restore", []byte(input)) == nil && strings.Contains(input, "--modprobe") && !strings.Contains(input, "\"") {
			for _, word := range strings.FieldsFunc(input, func(r rune) bool { return r == ' ' || r == '\t' || r == '\n' || r == '\r' }) {
				if strings.HasPrefix(word, "--modprobe") && (word == "--modprobe" || word[len("--modprobe")] == '=') {
					t.Errorf("%q is taken", input)
				}
			}
		}
	})
}
