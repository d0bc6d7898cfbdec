package fault

import (
	"bytes"
	"strings"
	"testing"

	"synclab/bench/pass"
	"synclab/bench/raw"
	"synclab/bench/subject/host"
	"synclab/proxier/iptables"
	"synclab/scenarios"
)

// The objects of another program are as many as asked for, and are gone afterwards. A change by the subject is found.
func TestForeignStands(t *testing.T) {
	if _, err := iptables.FindBinary("nft"); err != nil {
		t.Skip("package nftables: ", err)
	}
	for _, name := range brokenSubjects {
		for broken, script := range map[string]string{
			"":          "",
			"element":   "delete element inet " + standingTable + " large { 10.0.3.1 . 1 }",
			"newer set": "delete set inet " + standingTable + " typed",
		} {
			t.Run(name+" "+broken, func(t *testing.T) {
				r := written(t, name)
				var out bytes.Buffer
				r.Messages = pass.NewMessageWriter(&out)
				if r.Host == nil {
					r.Host = &host.Host{Env: r.Env}
				}
				d := newFault(&scenarios.Fault{Kind: scenarios.FaultForeign, Elements: 2500, Rules: 700}, "3:fault")
				if err := r.stand(t.Context(), d); err != nil {
					t.Fatal(err)
				}
				tools := r.othersIptables()
				text, err := nft(t.Context(), "list", "map", "inet", standingTable, "large")
				pods, err2 := podsOf(tools)
				if err != nil || err2 != nil || strings.Count(text, " . ") < 2500 || len(pods) != 71 || pods[standingPods] != 70 || pods[standingPod+"69"] != rulesOfPod-1 {
					t.Fatalf("%d elements, %d chains: %v, %v", strings.Count(text, " . "), len(pods), err, err2)
				}
				if script != "" {
					if _, err := nft(t.Context(), script); err != nil {
						t.Fatal(err)
					}
				}
				if err := d.stop(); err != nil {
					t.Fatal(err)
				}
				if found := strings.Contains(out.String(), string(raw.Violation)); found != (script != "") {
					t.Errorf("a change was found: %t\n%s", found, out.String())
				}
				tables, err := nft(t.Context(), "list", "tables")
				if pods, err2 := podsOf(tools); err != nil || err2 != nil || len(pods) > 0 || strings.Contains(tables, standingTable) {
					t.Errorf("left: %v, %s, %v, %v", pods, tables, err, err2)
				}
			})
		}
	}
}
