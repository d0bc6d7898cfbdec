package main

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"synclab/cmd/synclab/planning"
	"synclab/reports/plan"
	"synclab/scenarios"
	"synclab/sim"
	"synclab/sim/live"
	"synclab/sim/manifests"
	"synclab/sim/world"
)

// plannedCluster is 40 Services with three endpoints on four nodes, and one headless Service.
func plannedCluster(t *testing.T) *sim.Objects {
	t.Helper()
	objects, err := world.Generate(scenarios.Shape{Services: 41, Endpoints: scenarios.Endpoints{Count: 3}, Nodes: 4}, 7)
	if err != nil {
		t.Fatal(err)
	}
	objects.Services[0].Spec.ClusterIP = corev1.ClusterIPNone
	objects.Services[0].Spec.ClusterIPs = []string{corev1.ClusterIPNone}
	return objects
}

// dumped writes objects as a dump.
func dumped(t *testing.T, o *sim.Objects) string {
	t.Helper()
	var text bytes.Buffer
	if err := manifests.WriteObjects(&text, o); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "dump.yaml")
	if err := os.WriteFile(path, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// readCluster reads the flags of a plan's cluster.
func readCluster(t *testing.T, args ...string) (plan.Cluster, []string, error) {
	t.Helper()
	var f planCluster
	cmd := &cobra.Command{Use: "plan"}
	f.register(cmd)
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	in, notes, err := f.read(t.Context(), cmd, streams{strings.NewReader(""), &bytes.Buffer{}, &bytes.Buffer{}})
	if err != nil {
		return plan.Cluster{}, nil, err
	}
	return in.today, notes, nil
}

func TestClusterInNumbers(t *testing.T) {
	c, notes, err := readCluster(t, "--services", "20000", "--endpoints", "20", "--churn", "50", "--rollouts", "3", "--churn-amplitude", "0.5", "--node-losses", "2", "--service-churn", "0.1")
	want := plan.Churn{Endpoints: 50, Services: 0.1, Swing: 0.5, Rollouts: 3, NodeLosses: 2}
	if err != nil || len(notes) > 0 || c.Services != 20000 || c.Endpoints != 20 || c.Nodes != defaultNodes || c.Churn.Endpoints != want.Endpoints ||
		c.Churn.Services != want.Services || c.Churn.Swing != want.Swing || c.Churn.Rollouts != want.Rollouts || c.Churn.NodeLosses != want.NodeLosses {
		t.Errorf("%+v, %q, %v", c, notes, err)
	}
	c, _, err = readCluster(t, "--services", "7", "--churn", "0")
	if err != nil || c.Endpoints != defaultEndpoints || c.Churn.Endpoints != 0 {
		t.Errorf("%+v, %v", c, err)
	}
}

// A dump is counted; flags override the counts.
func TestClusterOfADump(t *testing.T) {
	path := dumped(t, plannedCluster(t))
	c, notes, err := readCluster(t, "-f", path, "--churn", "2")
	if err != nil || c.Services != 40 || c.Endpoints != 3 || c.Nodes != 4 {
		t.Fatalf("%+v, %v", c, err)
	}
	if want := "from " + path + ": 40 Services with 40 ports, 3 endpoints each in the mean, at most 3; 4 nodes; 1 headless or external Services are left out"; len(notes) != 1 || notes[0] != want {
		t.Errorf("notes %q; want %s", notes, want)
	}
	c, _, err = readCluster(t, "-f", path, "--churn", "2", "--nodes", "30", "--services", "80")
	if err != nil || c.Services != 80 || c.Endpoints != 3 || c.Nodes != 30 {
		t.Errorf("with flags: %+v, %v", c, err)
	}
}

// A live cluster is listed, and counted like its dump.
func TestClusterThatLives(t *testing.T) {
	objects, kubeconfig := served(t, 30)
	c, notes, err := readCluster(t, "--kubeconfig", kubeconfig, "--churn", "2")
	if err != nil {
		t.Fatal(err)
	}
	want := planning.CensusOf(objects)
	if c.Services != want.Services || c.Endpoints != want.Endpoints || c.Nodes != want.Nodes || !slices.Equal(notes, []string{"from the cluster: " + want.String()}) {
		t.Errorf("%+v, %q; want %+v", c, notes, want)
	}
}

// Endpoints that are not ready do not count. Nodes are those of the endpoints.
func TestCensus(t *testing.T) {
	o := plannedCluster(t)
	o.Nodes = nil
	two := o.Services[1]
	two.Spec.Ports = append(two.Spec.Ports, corev1.ServicePort{Name: "second", Port: 81})
	not, slow := false, o.Slices[5]
	slow.Endpoints[0].Conditions.Ready = &not
	six := o.Slices[6].DeepCopy()
	six.Name, six.AddressType, six.Endpoints = "six", discoveryv1.AddressTypeIPv6, six.Endpoints[:1]
	o.Slices = append(o.Slices, six)
	c := planning.CensusOf(o)
	if c.Services != 40 || c.Ports != 41 || c.Left != 1 || c.Nodes != 4 || !c.Dual || math.Abs(c.Endpoints-float64(40*3-1+1)/40) > 1e-9 || c.Most != 4 {
		t.Errorf("%+v", c)
	}
	if text := c.String(); !strings.Contains(text, "40 Services with 41 ports, 3 endpoints each in the mean, at most 4; 4 nodes") || !strings.Contains(text, "dual stack") {
		t.Error(text)
	}
}

// The difference of two dumps is a lower bound of the changes.
func TestChurnFromTwoDumps(t *testing.T) {
	before, now := plannedCluster(t), plannedCluster(t)
	services := map[string]int{}
	for i, s := range before.Slices {
		services[s.Labels[discoveryv1.LabelServiceName]] = i
	}
	slice := func(service int) *discoveryv1.EndpointSlice { return now.Slices[services[now.Services[service].Name]] }
	slice(0).Endpoints = nil                                                                             // headless: no proxy handles it
	slice(1).Endpoints = slice(1).Endpoints[1:]                                                          // one endpoint less
	slice(2).Endpoints[0], slice(2).Endpoints[2] = slice(2).Endpoints[2], slice(2).Endpoints[0]          // only reordered
	slice(3).ResourceVersion, slice(3).Annotations = "99999", map[string]string{"example.com/seen": "x"} // no proxy reads these
	not := false
	slice(4).Endpoints[1].Conditions.Ready = &not
	now.Services[5].Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	now.Services[6].Labels = map[string]string{"example.com/team": "b"} // nor this
	gone := services[now.Services[40].Name]
	now.Services = now.Services[:40]
	now.Slices = append(now.Slices[:gone:gone], now.Slices[gone+1:]...)
	if slices, services := planning.ChangedBetween(before, now); slices != 3 || services != 2 {
		t.Fatalf("%d EndpointSlices, %d Services; want 3 and 2", slices, services)
	}
	old, new := dumped(t, before), dumped(t, now)
	c, notes, err := readCluster(t, "-f", new, "--earlier", old, "--earlier-age", "10s")
	if err != nil || c.Churn.Endpoints != 0.3 || c.Churn.Services != 0.2 || c.Services != 39 {
		t.Fatalf("%+v, %v", c, err)
	}
	if len(notes) != 2 || !strings.Contains(notes[1], "10s apart: 3 EndpointSlices and 2 Services differ: at least 0.5 changes a second") {
		t.Errorf("%q", notes)
	}
}

// A trace has a rate, and a cluster, which is used if no other is given.
func TestChurnFromATrace(t *testing.T) {
	objects := plannedCluster(t)
	var text bytes.Buffer
	encoder := live.NewEncoder(&text)
	if err := encoder.Snapshot(objects); err != nil {
		t.Fatal(err)
	}
	own := func(service int) *discoveryv1.EndpointSlice {
		for _, s := range objects.Slices {
			if s.Labels[discoveryv1.LabelServiceName] == objects.Services[service].Name {
				return s
			}
		}
		t.Fatal("no slice")
		return nil
	}
	for i, change := range []sim.Change{
		{Due: time.Second, Op: sim.Update, Object: own(1)}, {Due: 2 * time.Second, Op: sim.Update, Object: own(0)}, // the headless Service
		{Due: 3 * time.Second, Op: sim.Delete, Object: objects.Services[2]}, {Due: 3 * time.Second, Op: sim.Update, Object: objects.Nodes[0]},
		{Due: 10 * time.Second, Op: sim.Update, Object: own(1)},
	} {
		if err := encoder.Change(live.Change{Change: change}); err != nil {
			t.Fatal(i, err)
		}
	}
	write := writer(t)
	path := write("trace.jsonl", text.String())
	c, notes, err := readCluster(t, "--churn-from", path)
	if err != nil || c.Services != 40 || c.Endpoints != 3 || c.Nodes != 4 || len(c.Churn.Trace) != 3 || c.Churn.Endpoints != 0.2 || c.Churn.Services != 0.1 {
		t.Fatalf("%+v, %v", c, err)
	}
	if e := c.Churn.Trace; e[0] != 1 || e[1] != 3 || e[2] != 10 {
		t.Errorf("events %+v", e)
	}
	if len(notes) != 2 || notes[0] != "from "+path+": 2 changes of EndpointSlices and 1 of Services in 10s: 0.3 a second, replayed in a loop (what came after its last change is unknown, and not counted)" {
		t.Errorf("%q", notes)
	}
	c, _, err = readCluster(t, "--churn-from", path, "--services", "9", "--nodes", "2")
	if err != nil || c.Services != 9 || c.Endpoints != 3 || c.Nodes != 2 || len(c.Churn.Trace) != 3 {
		t.Errorf("with flags: %+v, %v", c, err)
	}

	whole := text.String()
	cut := write("cut.jsonl", whole[:len(whole)-20])
	if c, notes, err := readCluster(t, "--churn-from", cut); err != nil || len(c.Churn.Trace) != 2 || !strings.HasSuffix(notes[0], "; its last line is incomplete and ignored") {
		t.Errorf("an incomplete trace: %+v, %q, %v", c, notes, err)
	}
	lines := strings.SplitAfter(whole, "\n")
	few := write("few.jsonl", strings.Join(lines[:len(lines)-5], ""))
	if _, _, err := readCluster(t, "--churn-from", few); err == nil || !strings.HasSuffix(err.Error(), "1 changes are too few to compute a rate") {
		t.Errorf("too few: %v", err)
	}
	if _, _, err := readCluster(t, "--churn-from", write("dump.yaml", "kind: List\n")); err == nil || !strings.Contains(err.Error(), "not a recorded trace: live: line 1") {
		t.Errorf("no trace: %v", err)
	}
}

// Contradicting and missing flags are refused by name.
func TestClusterRefuses(t *testing.T) {
	dump := dumped(t, plannedCluster(t))
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--churn", "5"}, "the size of the cluster today is missing: want --services NUMBER, -f DUMP, --kubeconfig FILE or --churn-from TRACE"},
		{[]string{"--services", "5"}, "the rate of endpoint changes is missing: want --churn RATE (per second), --churn-from TRACE, or --earlier DUMP --earlier-age TIME"},
		{[]string{"--services", "0", "--churn", "5"}, "--services 0: want 1 to 1,000,000"},
		{[]string{"--services", "5", "--churn", "-1"}, "--churn -1: want 0 to 100000"},
		{[]string{"--services", "5", "--churn", "NaN"}, "--churn NaN: want 0 to 100000"},
		{[]string{"--services", "5", "--churn", "1", "--churn-amplitude", "2"}, "--churn-amplitude 2: want 0 to 1"},
		{[]string{"--services", "5", "--churn", "1", "--nodes", "0"}, "--nodes 0: want at least 1"},
		{[]string{"--services", "5", "--churn", "1", "--endpoints", "-2"}, "--endpoints -2: want at least 1"},
		{[]string{"-f", dump, "--churn", "1", "--endpoints", "3"}, "--endpoints and --set are for a generated cluster: a dump has a shape of its own"},
		{[]string{"--services", "5", "--churn-from", "x", "--rollouts", "1"}, "--rollouts has no meaning with --churn-from: the trace has all changes"},
		{[]string{"--services", "5", "--earlier", dump, "--earlier-age", "1m"}, "--earlier needs the dump of today: name it with -f or --kubeconfig"},
		{[]string{"-f", dump, "--earlier", dump}, "--earlier-age is missing: want the time between --earlier and the dump of today, e.g. 10m"},
		{[]string{"-f", dump, "--churn", "1", "--earlier-age", "1m"}, "--earlier-age is for --earlier, which is not given"},
	} {
		if _, _, err := readCluster(t, c.args...); err == nil || err.Error() != c.want {
			t.Errorf("%q: %v; want %s", c.args, err, c.want)
		}
	}
	headless := plannedCluster(t)
	headless.Services = headless.Services[:1]
	headless.Slices = nil
	if _, _, err := readCluster(t, "-f", dumped(t, headless), "--churn", "1"); err == nil || !strings.HasSuffix(err.Error(), "dump.yaml: it has no Service that a Service proxy handles") {
		t.Errorf("nothing to serve: %v", err)
	}
}
