package capture

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"synclab/internal/inet"
	"synclab/proxier"
	"synclab/proxier/iptables"
	"synclab/scenarios"
	"synclab/sim"
	"synclab/sim/manifests"
	"synclab/sim/random"
	"synclab/sim/world"
)

// brand is in every name of the clusters here, and in everything else that must not leak.
const brand = "acme"

// branded is the cluster with the brand in all its names, and with other fields of real clusters.
func branded(o *sim.Objects) *sim.Objects {
	var b sim.Objects
	mark := func(s *string) {
		if s != nil && *s != "" && !wellKnownPorts[*s] {
			*s += "-" + brand
		}
	}
	for _, n := range o.Nodes {
		n := n.DeepCopy()
		mark(&n.Name)
		if zone := n.Labels[corev1.LabelTopologyZone]; zone != "" {
			mark(&zone)
			n.Labels[corev1.LabelTopologyZone] = zone
		}
		n.Spec.ProviderID = brand
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: "node." + brand})
		b.Nodes = append(b.Nodes, n)
	}
	for _, s := range o.Services {
		s := s.DeepCopy()
		mark(&s.Namespace)
		mark(&s.Name)
		mark(&s.Spec.ExternalName)
		s.Spec.Selector = map[string]string{"app": brand}
		s.Annotations = map[string]string{"owner": brand, "service.kubernetes.io/" + brand: ""}
		for i := range s.Spec.Ports {
			mark(&s.Spec.Ports[i].Name)
			s.Spec.Ports[i].AppProtocol = ptr.To(brand)
		}
		if len(s.Status.LoadBalancer.Ingress) > 0 {
			s.Status.LoadBalancer.Ingress[0].Hostname = "lb." + brand
		}
		b.Services = append(b.Services, s)
	}
	for _, s := range o.Slices {
		s := s.DeepCopy()
		mark(&s.Namespace)
		mark(&s.Name)
		if name, ok := s.Labels[discoveryv1.LabelServiceName]; ok {
			mark(&name)
			s.Labels[discoveryv1.LabelServiceName] = name
		}
		if s.Labels == nil {
			s.Labels = map[string]string{}
		}
		s.Labels["team"] = brand
		for i := range s.Ports {
			mark(s.Ports[i].Name)
		}
		for i := range s.Endpoints {
			e := &s.Endpoints[i]
			mark(e.NodeName)
			mark(e.Zone)
			e.Hostname, e.TargetRef = ptr.To(brand), &corev1.ObjectReference{Name: brand}
			if e.Hints != nil {
				for j := range e.Hints.ForZones {
					mark(&e.Hints.ForZones[j].Name)
				}
				for j := range e.Hints.ForNodes {
					mark(&e.Hints.ForNodes[j].Name)
				}
			}
		}
		b.Slices = append(b.Slices, s)
	}
	return &b
}

// clusters returns the inputs of the property tests.
func clusters(t *testing.T) map[string]*sim.Objects {
	t.Helper()
	all := map[string]*sim.Objects{}
	for _, name := range []string{"mixed-types", "steady-churn"} {
		s, err := scenarios.Load(name, nil, scenarios.Sizes{Services: 60, Endpoints: 7})
		if err != nil {
			t.Fatal(err)
		}
		o, err := world.Generate(s.Shape, 11)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = branded(o)
	}
	for seed := range uint64(40) {
		all[fmt.Sprintf("random-%d", seed)] = branded(random.New(random.Options{Seed: seed}).Objects())
	}
	return all
}

// key returns the bytes of a key; another number, another key.
func key(n byte) *bytes.Reader { return bytes.NewReader(bytes.Repeat([]byte{n}, 32)) }

func written(t *testing.T, o *sim.Objects) string {
	t.Helper()
	var text bytes.Buffer
	if err := manifests.WriteObjects(&text, o); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

var addressLike = regexp.MustCompile(`[0-9a-fA-F]*[.:][0-9a-fA-F.:]*[0-9a-fA-F:](/[0-9]+)?`)

// anyMapped is every IPv4 address. Like 0.0.0.0/0, it reveals nothing.
var anyMapped = netip.MustParsePrefix("::ffff:0.0.0.0/96")

// numbersIn returns all addresses and ranges in a text.
func numbersIn(text string) map[netip.Prefix]bool {
	found := map[netip.Prefix]bool{}
	for _, word := range addressLike.FindAllString(text, -1) {
		if p, ok := parseAddress(word); ok {
			found[p] = true
		} else if p, ok := parseRange(word); ok && p != anyMapped {
			found[p] = true
		}
	}
	return found
}

// The output reveals nothing of the original: no name, no address, no specific range.
func TestNothingSurvives(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	for name, o := range clusters(t) {
		before := written(t, o)
		if !strings.Contains(before, brand) {
			t.Fatalf("%s: the original does not hold what is searched for", name)
		}
		a, err := Anonymize(o, key(1))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		after := written(t, a.Objects)
		if i := strings.Index(after, brand); i >= 0 {
			t.Errorf("%s: a name survives: …%s…", name, after[max(0, i-200):min(len(after), i+50)])
		}
		originals := numbersIn(before)
		if len(originals) < 10 {
			t.Fatalf("%s: only %d addresses were found in the original", name, len(originals))
		}
		for p := range numbersIn(after) {
			if originals[p] && !newNumbering(p.Addr().BitLen(), nil).keeps(p) {
				t.Errorf("%s: %s survives", name, p)
			}
		}
		for _, object := range o.Services {
			if strings.Contains(after, string(object.UID)) && object.UID != "" {
				t.Errorf("%s: UID %s survives", name, object.UID)
			}
		}
		if written(t, o) != before {
			t.Fatalf("%s: the original was written to", name)
		}
	}
}

// Replacements depend on the key only.
func TestKeys(t *testing.T) {
	o := clusters(t)["mixed-types"]
	text := func(n byte) string {
		a, err := Anonymize(o, key(n))
		if err != nil {
			t.Fatal(err)
		}
		return written(t, a.Objects)
	}
	one, again, other := text(1), text(1), text(2)
	if one != again {
		t.Error("the same key gives two results")
	}
	a, b := numbersIn(one), numbersIn(other)
	same := 0
	for p := range a {
		if b[p] {
			same++
		}
	}
	if same > len(a)/50 {
		t.Errorf("%d of %d addresses are the same with two keys", same, len(a))
	}
	if _, err := Anonymize(o, bytes.NewReader(nil)); err == nil {
		t.Error("no key, and no error")
	}
}

// Known addresses reveal nothing about their neighbours: within their group, new numbers are uniform.
func TestNeighboursAreDrawn(t *testing.T) {
	o := clusters(t)["steady-churn"]
	differences := map[uint32]int{}
	for n := range byte(20) {
		a, err := newAnonymizer(key(n))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.anonymize(o); err != nil {
			t.Fatal(err)
		}
		ip := func(i int) uint32 {
			p, _ := parseAddress(o.Services[i].Spec.ClusterIP)
			b := a.v4.assigned[p].Addr().As4()
			return uint32(b[2])<<8 | uint32(b[3])
		}
		differences[ip(0)-ip(1)]++
	}
	if len(differences) < 18 {
		t.Errorf("the distance of two cluster IPs took only %d values with 20 keys", len(differences))
	}
}

// The rules are the same but for their names: the same number in each table, and the same graph of chains.
func TestSameRules(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	for name, o := range clusters(t) {
		a, err := newAnonymizer(key(3))
		if err != nil {
			t.Fatal(err)
		}
		result, err := a.anonymize(o)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, node := range o.Nodes[:min(2, len(o.Nodes))] {
			before := render(t, o, node.Name)
			after := render(t, result.Objects, a.names[nodes][node.Name])
			for i := range before {
				if b, a := strings.Count(before[i], "\n-A "), strings.Count(after[i], "\n-A "); b != a || b == 0 {
					t.Errorf("%s on %s: %d rules became %d", name, node.Name, b, a)
				}
				if diff := cmp.Diff(structure(before[i], a.translate), structure(after[i], func(p netip.Prefix) netip.Prefix { return p })); diff != "" {
					t.Errorf("%s on %s: the rules differ by more than names:\n%s", name, node.Name, diff)
				}
			}
			if t.Failed() {
				return
			}
		}
	}
}

func (a *anonymizer) translate(p netip.Prefix) netip.Prefix {
	if to, ok := a.numbers(inet.FamilyOf(p.Addr())).assigned[p]; ok {
		return to
	}
	return p
}

// render returns the tables of each family on a node.
func render(t *testing.T, o *sim.Objects, name string) []string {
	t.Helper()
	i := slices.IndexFunc(o.Nodes, func(n *corev1.Node) bool { return n.Name == name })
	options := proxier.Options{NodeName: name, Families: []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}}
	for _, address := range o.Nodes[i].Status.Addresses {
		if addr, err := netip.ParseAddr(address.Address); err == nil {
			options.NodeIPs = append(options.NodeIPs, addr)
		}
	}
	models, err := proxier.Render(t.Context(), options, o.Services, o.Slices, o.Nodes[i])
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, m := range models {
		texts = append(texts, saved(t, m))
	}
	return texts
}

func saved(t *testing.T, m *iptables.Model) string {
	t.Helper()
	var text strings.Builder
	if err := m.Save(&text); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

var (
	comment     = regexp.MustCompile(`(^| )-m comment --comment ("[^"]*"|\S+)`)
	hashed      = regexp.MustCompile(`KUBE-(SVC|SVL|EXT|FW|SEP)-[A-Z2-7]{16}`)
	probability = regexp.MustCompile(` -m statistic --mode random --probability (\S+)`)
)

// structure returns the graph of chains: the content of each chain of a fixed name. The content of chains of hashed
// names replaces their names, without order and comments. The order of addresses determines which endpoint has which
// probability, so probabilities are compared separately.
func structure(saved string, translate func(netip.Prefix) netip.Prefix) map[string][]string {
	rules := map[string][]string{}
	table := ""
	for line := range strings.Lines(saved) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "*"); ok {
			table = name
		}
		if rest, ok := strings.CutPrefix(line, "-A "); ok {
			chain, rule, _ := strings.Cut(rest, " ")
			rule = comment.ReplaceAllString(rule, "")
			if m := probability.FindStringSubmatch(rule); m != nil {
				rules[table+" "+chain] = append(rules[table+" "+chain], "probability "+m[1])
				rule = probability.ReplaceAllString(rule, "")
			}
			words := strings.Fields(rule)
			for i := range words {
				if i > 0 && words[i-1] == "--dport" && (chain == "KUBE-NODEPORTS" || strings.Contains(rule, "--dst-type LOCAL")) {
					words[i] = "replaced"
				}
				words[i] = translated(words[i], translate)
			}
			rules[table+" "+chain] = append(rules[table+" "+chain], strings.Join(words, " "))
		}
	}
	memo := map[string]string{}
	var content func(chain string) []string
	content = func(chain string) []string {
		var out []string
		inTable, own, _ := strings.Cut(chain, " ")
		for _, rule := range rules[chain] {
			out = append(out, hashed.ReplaceAllStringFunc(rule, func(name string) string {
				if name == own {
					return "itself"
				}
				key := inTable + " " + name
				if memo[key] == "" {
					sum := sha256.Sum256([]byte(strings.Join(content(key), "\n")))
					memo[key] = fmt.Sprintf("chain %x", sum[:8])
				}
				return memo[key]
			}))
		}
		slices.Sort(out)
		return out
	}
	result := map[string][]string{}
	for _, chain := range slices.Sorted(maps.Keys(rules)) {
		if !hashed.MatchString(chain) {
			result[chain] = content(chain)
		}
	}
	return result
}

// translated replaces the address or range in a word of a rule.
func translated(word string, translate func(netip.Prefix) netip.Prefix) string {
	if at, err := netip.ParseAddrPort(word); err == nil {
		p := translate(netip.PrefixFrom(at.Addr(), at.Addr().BitLen()))
		return netip.AddrPortFrom(p.Addr(), at.Port()).String()
	}
	if p, ok := parseAddress(word); ok {
		return translate(p).Addr().String()
	}
	if p, ok := parseRange(word); ok && strings.Contains(word, "/") {
		return translate(p).String()
	}
	return word
}

// Written objects can be read back, and run.
func TestReadBack(t *testing.T) {
	for _, name := range []string{"mixed-types", "steady-churn"} {
		a, err := Anonymize(clusters(t)[name], key(4))
		if err != nil {
			t.Fatal(err)
		}
		o, err := manifests.ReadObjects([]string{"-"}, strings.NewReader(written(t, a.Objects)), manifests.ReadOptions{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if len(o.Services) != len(a.Objects.Services) || len(o.Slices) != len(a.Objects.Slices) || len(o.Nodes) != len(a.Objects.Nodes) {
			t.Errorf("%s: %d Services, %d slices and %d nodes come back as %d, %d and %d", name,
				len(a.Objects.Services), len(a.Objects.Slices), len(a.Objects.Nodes), len(o.Services), len(o.Slices), len(o.Nodes))
		}
		if len(a.Services) == 0 || len(a.Services) != len(a.Pods) {
			t.Errorf("%s: Services are in %v, pods in %v; want a range of each family", name, a.Services, a.Pods)
		}
		for _, service := range a.Objects.Services {
			p, ok := parseAddress(service.Spec.ClusterIP)
			if ok && !slices.ContainsFunc(a.Services, func(r netip.Prefix) bool { return r.Contains(p.Addr()) }) {
				t.Errorf("%s: Services are in %v, but one has %s", name, a.Services, p.Addr())
			}
		}
	}
}

// Numbers that identify a cluster are drawn anew: addresses of class E, node ports, and intervals between times.
func TestTellingNumbers(t *testing.T) {
	made := time.Date(2024, 5, 17, 11, 22, 33, 0, time.UTC)
	service := func(name, ip string, nodePort, check int32, after time.Duration) *corev1.Service {
		return &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, CreationTimestamp: metav1.NewTime(made.Add(after))},
			Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, ClusterIP: ip, ClusterIPs: []string{ip}, HealthCheckNodePort: check,
				Ports: []corev1.ServicePort{{Port: 80, NodePort: nodePort}, {Port: 81, NodePort: 31999}}},
		}
	}
	trigger := made.Add(123456789 * time.Nanosecond)
	o := &sim.Objects{
		Services: []*corev1.Service{
			service("c", "10.96.0.3", 31003, 31777, 73*time.Hour), service("a", "10.96.0.1", 31001, 0, 0), service("b", "10.96.0.2", 31002, 0, 97*time.Second),
		},
		Slices: []*discoveryv1.EndpointSlice{{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns", Name: "a-1", CreationTimestamp: metav1.NewTime(made.Add(time.Hour)), Labels: map[string]string{discoveryv1.LabelServiceName: "a"},
				Annotations: map[string]string{corev1.EndpointsLastChangeTriggerTime: trigger.Format(time.RFC3339Nano)},
			},
			AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"240.17.3.4"}}, {Addresses: []string{"251.9.8.7"}}},
		}},
	}
	a, err := Anonymize(o, key(1))
	if err != nil {
		t.Fatal(err)
	}
	text := written(t, a.Objects)
	for _, secret := range []string{"31001", "31002", "31003", "31999", "31777", "240.", "251.", "2024", "11:22:33", "123456789"} {
		if strings.Contains(text, secret) {
			t.Errorf("%s survives in\n%s", secret, text)
		}
	}
	ports := map[int32]int{}
	var order []time.Time
	for _, s := range a.Objects.Services {
		for _, p := range s.Spec.Ports {
			ports[p.NodePort]++
		}
		order = append(order, s.CreationTimestamp.Time)
		if s.Spec.HealthCheckNodePort != 0 {
			ports[s.Spec.HealthCheckNodePort] += 10
		}
	}
	if counts := slices.Sorted(maps.Values(ports)); !slices.Equal(counts, []int{1, 1, 1, 3, 10}) {
		t.Errorf("ports on nodes %v: one is not one again", ports)
	}
	slices.SortFunc(order, time.Time.Compare)
	slice := a.Objects.Slices[0]
	changed, err := time.Parse(time.RFC3339Nano, slice.Annotations[corev1.EndpointsLastChangeTriggerTime])
	want := []time.Time{epoch, epoch.Add(2 * time.Second), epoch.Add(4 * time.Second)} // a, trigger, b, slice, c
	if err != nil || !slices.Equal(order, want) || !changed.Equal(epoch.Add(time.Second)) || !slice.CreationTimestamp.Time.Equal(epoch.Add(3*time.Second)) {
		t.Errorf("times of Services %v, changed %v, %v, slice %v", order, changed, err, slice.CreationTimestamp)
	}
}
