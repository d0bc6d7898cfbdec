package bench

import (
	"errors"
	"strings"
	"testing"

	"synclab/scenarios"
	"synclab/sim"
	"synclab/sim/manifests"
)

// givenCluster reads Services, slices and Nodes in short notation: "tcp/3 udp/0 sctp/1" are Services of a protocol with so
// many endpoints; with nodes, endpoints are spread over so many Nodes.
func givenCluster(t *testing.T, services string, nodes int) *sim.Objects {
	t.Helper()
	var b strings.Builder
	for i := range nodes {
		b.WriteString("---\napiVersion: v1\nkind: Node\nmetadata: {name: " + string(rune('a'+i)) + "}\n" +
			"spec: {podCIDRs: [10.42." + string(rune('0'+i)) + ".0/24]}\n" +
			"status: {addresses: [{type: InternalIP, address: 192.168.3.1" + string(rune('0'+i)) + "}]}\n")
	}
	for i, text := range strings.Fields(services) {
		protocol, count, _ := strings.Cut(text, "/")
		name := protocol + string(rune('a'+i))
		b.WriteString("---\napiVersion: v1\nkind: Service\nmetadata: {name: " + name + ", uid: u}\nspec: {clusterIP: 10.43.0.1" + string(rune('0'+i)) +
			", ports: [{port: 80, protocol: " + strings.ToUpper(protocol) + "}]}\n")
		b.WriteString("---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: " + name + "-x, labels: {kubernetes.io/service-name: " + name + "}}\n" +
			"addressType: IPv4\nports: [{name: '', port: 8080, protocol: " + strings.ToUpper(protocol) + "}]\nendpoints:\n")
		for e := range int(count[0] - '0') {
			node := e % nodes
			b.WriteString("- {addresses: [10.42." + string(rune('0'+node)) + "." + string(rune('1'+i)) + string(rune('0'+e)) + "], nodeName: " + string(rune('a'+node)) + "}\n")
		}
		if count == "0" {
			b.WriteString("[]\n")
		}
	}
	o, err := manifests.ReadObjects([]string{"-"}, strings.NewReader(strings.ReplaceAll(b.String(), "endpoints:\n[]", "endpoints: []")), manifests.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// Steps that given objects do not allow are left out, or are smaller. If the rest does not answer the question, the
// scenario is refused.
func TestFitSteps(t *testing.T) {
	for _, test := range []struct {
		about, scenario, services string
		nodes                     int
		want                      []string // parts of the remarks, in order
		refused                   string   // part of the error
	}{
		{"all fit", "steady-churn", "tcp/3 udp/3", 1, nil, ""},
		{"TCP is enough", "steady-churn", "tcp/3", 1, nil, ""},
		{"no probe of SCTP", "steady-churn", "sctp/3", 1, []string{"left out: step 6, probe: no TCP or UDP Service"}, ""},
		{"few changes", "mixed-types", "tcp/1", 1, []string{"step 3, churn: 2 changes instead of 30"}, ""},
		{"no endpoints", "steady-churn", "tcp/0", 1, nil, "has no TCP or UDP Service with a cluster IP and ready endpoints"},
		{"one Node cannot be lost, and few Services roll out", "disruption", "tcp/3 udp/3", 1,
			[]string{"step 5, rollout: 2 Services with endpoints instead of 5", "left out: step 16, nodeLoss: there are 0 Nodes"}, ""},
		{"fewer Nodes are lost", "disruption", "tcp/6 udp/6 tcp/6 tcp/6 tcp/6", 3, []string{"step 16, nodeLoss: 2 Nodes besides the proxier's own instead of 3"}, ""},
		{"traffic needs TCP or UDP", "disruption", "sctp/3", 1, nil, "has no TCP or UDP Service"},
		{"nothing left to probe", "verdicts", "sctp/3", 1, nil, "cannot be run with this input"},
		{"a restart needs nothing", "restart", "tcp/3", 1, nil, ""},
	} {
		t.Run(test.about, func(t *testing.T) {
			s, err := scenarios.Load(test.scenario, nil, scenarios.Sizes{})
			if err != nil {
				t.Fatal(err)
			}
			before := len(s.Steps)
			left, err := fitSteps(s, givenCluster(t, test.services, test.nodes), false)
			var input *InputError
			if test.refused != "" {
				if !errors.As(err, &input) || !strings.Contains(err.Error(), test.refused) {
					t.Fatalf("error %v, want %q", err, test.refused)
				}
				return
			}
			if err != nil || len(left) != len(test.want) || len(s.Steps) != before {
				t.Fatalf("remarks %q, %d steps, %v; want %q, %d steps", left, len(s.Steps), err, test.want, before)
			}
			for i, want := range test.want {
				if !strings.Contains(left[i], want) {
					t.Errorf("remark %q, want %q", left[i], want)
				}
			}
		})
	}
}

// Without EndpointSlices the refusal says how to dump them.
func TestFitStepsWithoutSlices(t *testing.T) {
	s, err := scenarios.Load("steady-churn", nil, scenarios.Sizes{})
	if err != nil {
		t.Fatal(err)
	}
	o := givenCluster(t, "tcp/3", 1)
	o.Slices = nil
	if _, err := fitSteps(s, o, false); err == nil || !strings.Contains(err.Error(), howToDump) {
		t.Errorf("error %v, want the command that dumps slices", err)
	}
}

// Given objects have one shape: sweeps and targets of shapes make no cells of their own.
func TestWithoutSizes(t *testing.T) {
	for name, want := range map[string]int{"size-sweep": 1, "engine": 1, "sync-period": 10, "pod-networks": 3} {
		s, err := scenarios.Load(name, nil, scenarios.Sizes{})
		if err != nil {
			t.Fatal(err)
		}
		o := ExecuteOptions{Scenario: s, Objects: givenCluster(t, "tcp/3 udp/3", 1)}
		cells, left, err := o.cells()
		if err != nil || len(cells) != want || (want == 1) != (len(left) > 0) {
			t.Errorf("%s: %d cells, remarks %q, %v; want %d cells", name, len(cells), left, err, want)
		}
	}
}
