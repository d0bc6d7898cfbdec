package inspect

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"synclab/proxier/config"
	"synclab/sim"
	"synclab/sim/manifests"
)

func readFile(t *testing.T, name string) *Dump {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return readText(t, string(text))
}

func readText(t *testing.T, text string) *Dump {
	t.Helper()
	d, err := Read("test", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func cluster(t *testing.T) *sim.Objects {
	t.Helper()
	o, err := manifests.ReadObjects([]string{"testdata/cluster.yaml"}, nil, manifests.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// counts returns the number of each kind of finding.
func counts(r *Report) map[string]int {
	n := map[string]int{}
	for _, f := range r.Findings {
		n[f.Kind] += f.Count
	}
	return n
}

// Each kind of finding is found where it is, and nowhere else.
func TestFindings(t *testing.T) {
	text, err := os.ReadFile("testdata/broken.txt")
	if err != nil {
		t.Fatal(err)
	}
	broken := map[string]int{"missing-chain": 1, "no-endpoint": 1, "unequal-shares": 1, "older-version": 2, "unreachable": 2, "duplicate": 1, "empty-chain": 2}
	seen := map[string]bool{}
	with := func(more map[string]int) map[string]int {
		all := map[string]int{}
		for _, m := range []map[string]int{broken, more} {
			for kind, n := range m {
				all[kind] += n
			}
		}
		return all
	}
	nft, err := os.ReadFile("testdata/nft.txt")
	if err != nil {
		t.Fatal(err)
	}
	const ipvs = "\n*nat\n:PREROUTING ACCEPT [0:0]\n:KUBE-SERVICES - [0:0]\n:KUBE-NODE-PORT - [0:0]\n:KUBE-SEP-AAAAAAAAAAAAAAAA - [0:0]\n" +
		"-A PREROUTING -j KUBE-SERVICES\n-A KUBE-SERVICES -s 10.0.0.1 -m set --match-set KUBE-CLUSTER-IP dst,dst -j ACCEPT\nCOMMIT\n"
	for name, c := range map[string]struct {
		text string
		want map[string]int
	}{
		"broken":       {string(text), broken},
		"nft":          {string(nft), nil},
		"both":         {string(text) + string(nft), with(map[string]int{"two-modes": 2})},
		"ipvs":         {ipvs, map[string]int{"another-mode": 1, "unreachable": 1}},
		"not entered":  {strings.Replace(string(nft), "\t\tjump services\n", "", 1), map[string]int{"not-entered": 1, "unreachable": 5}},
		"fewer slots":  {strings.Replace(string(nft), "mod 2", "mod 3", 1), map[string]int{"unequal-shares": 1}},
		"falls out":    {strings.Replace(string(text), "http\" -j KUBE-SEP-BBBB", "http\" -m statistic --mode random --probability 0.5 -j KUBE-SEP-BBBB", 1), broken},
		"equal shares": {strings.Replace(string(text), "0.33333333349", "0.50000000000", 1), with(map[string]int{"unequal-shares": -1})},
	} {
		got := counts(readText(t, c.text).Examine())
		for _, k := range kinds {
			seen[k.kind] = seen[k.kind] || c.want[k.kind] > 0
			if got[k.kind] != c.want[k.kind] {
				t.Errorf("%s: %s: got %d, want %d", name, k.kind, got[k.kind], c.want[k.kind])
			}
		}
	}
	for _, k := range kinds {
		if !seen[k.kind] {
			t.Errorf("no input has %s", k.kind)
		}
	}
}

// Owners, proxies, notes and Services of a node.
func TestExamine(t *testing.T) {
	r := readFile(t, "broken.txt").Examine()
	owners := []Owned{
		{"kube-proxy", "IPv4 iptables", 10, 12, 0, 0}, {"flannel", "IPv4 iptables", 1, 3, 0, 0}, {"CNI plugins", "IPv4 iptables", 1, 1, 0, 0},
		{"Calico", "IPv6 iptables", 1, 1, 0, 0}, {"others", "IPv4 iptables", 0, 1, 0, 0}, {"kubelet", "IPv4 iptables", 2, 0, 0, 0},
	}
	for _, want := range owners {
		if !slices.ContainsFunc(r.Owners, func(o *Owned) bool { return *o == want }) {
			t.Errorf("got %v, without %v", r.Owners, want)
		}
	}
	if len(r.Proxies) != 1 || r.Proxies[0].Mode != modeIptables || !strings.HasPrefix(r.Proxies[0].Layout, "1.25 or later") {
		t.Errorf("got %v", r.Proxies)
	}
	if len(r.Notes) != 2 || !strings.Contains(r.Notes[0], "line 1:") || !strings.Contains(r.Notes[1], "1 rules have no readable destination") {
		t.Errorf("got notes %q", r.Notes)
	}
	if s := r.Services[0]; s.Name != "shop/web" || s.Rules != 5 || s.Endpoints != 2 {
		t.Errorf("got %+v", s)
	}
}

// nft prints the same rules as text and as JSON.
func TestNftFormats(t *testing.T) {
	text, asJSON := readFile(t, "nft.txt"), readFile(t, "nft.json")
	text.Tables = slices.DeleteFunc(text.Tables, func(t *Table) bool { return t.Name != "kube-proxy" })
	a, _ := json.Marshal(text.Examine())
	b, _ := json.Marshal(asJSON.Examine())
	if !bytes.Equal(a, b) {
		t.Errorf("text: %s\nJSON: %s", a, b)
	}
	for _, d := range []*Dump{text, asJSON} {
		s, err := d.Compare(t.Context(), cluster(t), config.New(), true)
		if err != nil || len(s.Differ) > 0 || s.Services != 2 || !strings.Contains(s.Method[0], "by address") {
			t.Errorf("got %+v, %v", s, err)
		}
	}
}

// Errors name the line, and say what to do.
func TestReadErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                                   "no rules: want the output of iptables-save",
		"Chain INPUT (policy ACCEPT)\n":      "no rules",
		"*nat\n:PREROUTING ACCEPT [0:0]":     "table nat has no COMMIT",
		"x\n*nat\n:A - [0:0]\n...\nCOMMIT\n": "line 4: not a rule",
		"table ip kube-proxy {\n\tchain a {\n\t\taccept\n":         "line 4: the output of nft ends within a block",
		`{"nftables": [{"rule": {"family": "ip", "table": "x"}}]}`: "table ip x",
		`{"nftables": [`: "line 1: JSON of nft: unexpected EOF",
	} {
		if _, err := Read("node.txt", strings.NewReader(text)); err == nil || !strings.HasPrefix(err.Error(), "node.txt: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}

// The tables of iptables and ip6tables are distinguished, with and without headers.
func TestFamilies(t *testing.T) {
	const one, six, open = "*nat\n:A - [0:0]\n-A A -s 10.0.0.1/32 -j RETURN\nCOMMIT\n", "*nat\n:A - [0:0]\n-A A -s fd00::1/128 -j RETURN\nCOMMIT\n", "*nat\n:A - [0:0]\nCOMMIT\n"
	for text, want := range map[string]string{
		one + six: "IPv4 iptables, IPv6 iptables", six + one: "IPv6 iptables, IPv4 iptables", one + open: "IPv4 iptables, IPv6 iptables",
		one + one: "IPv4 iptables, IPv4 iptables, another output", "# Generated by ip6tables-save v1\n" + open: "IPv6 iptables",
	} {
		var sets []string
		for _, t := range readText(t, text).Tables {
			sets = append(sets, t.Set)
		}
		if got := strings.Join(sets, ", "); got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
}

// Rules lose their comments, however a tool prints them, and keep the rest.
func TestComments(t *testing.T) {
	for text, want := range map[string]string{
		`-A X -m comment --comment "a \"secret\" b" -j DROP`: "-A X -j DROP",
		`-A X -m comment --comment secret -j DROP`:           "-A X -j DROP",
		`tcp dport 80 jump gone comment "a secret"`:          "tcp dport 80 jump gone",
		`tcp dport 80 /* a secret */ jump gone`:              "tcp dport 80 jump gone",
		`[{"elem":{"val":1,"comment":"a secret"}},{}]`:       `[{"elem":{"val":1}},{}]`,
	} {
		if got := comment.ReplaceAllString(text, ""); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}

// Without its comments and shares, what nft prints of iptables-nft is only counted, or left to iptables-save.
func TestIptablesNft(t *testing.T) {
	const nft = "table ip nat {\n\tchain KUBE-SVC-AAAAAAAAAAAAAAAA {\n\t\tcounter packets 0 bytes 0 jump KUBE-SEP-B\n\t\tcounter packets 0 bytes 0 jump KUBE-SEP-B\n\t}\n\tchain KUBE-SEP-B {\n\t}\n}\n"
	alone := readText(t, nft)
	if r := alone.Examine(); r.Broken() || len(r.Notes) != 1 || r.Owners[0].Rules != 2 {
		t.Errorf("got %+v", r)
	}
	if d := readText(t, nft+"*nat\n:PREROUTING ACCEPT [0:0]\nCOMMIT\n"); len(d.Tables) != 1 || d.Tables[0].Set != "IPv4 iptables" {
		t.Errorf("got %+v", d.Tables)
	}
}

// The texts of an anonymized report have no name and address of the input, and equal names stay equal.
func TestAnonymize(t *testing.T) {
	d := readFile(t, "broken.txt")
	r := d.Examine()
	var err error
	if r.Sync, err = d.Compare(t.Context(), cluster(t), config.New(), true); err != nil {
		t.Fatal(err)
	}
	if err := r.Anonymize(rand.NewChaCha8([32]byte{})); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"shop", "web", "10.96", "10.244", "AAAAAAAA", "node-7", "bundle"} {
		if bytes.Contains(text, []byte(secret)) {
			t.Errorf("%s is in %s", secret, text)
		}
	}
	if name := r.Services[0].Name; !strings.HasPrefix(name, "ns-1/svc-") || !slices.ContainsFunc(r.Sync.Differ, func(d Differ) bool { return d.Service == name }) {
		t.Errorf("%s is not the same everywhere: %s", name, text)
	}
}
