package visible

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"synclab/proxier/tracker"
)

// The endpoint log is read as it grows, line by line. A line that is not whole yet does not count, and a proxier that
// starts has no Service ports.
func TestEndpointLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	r, err := newUserspace([]corev1.IPFamily{corev1.IPv4Protocol}, path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	log, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	web := tracker.ServicePortName{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "web"}, PortKey: tracker.PortKey{Protocol: corev1.ProtocolTCP}}
	last, err := r.Generation()
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		text           string
		cluster, local []string
	}{
		{`{"started":true,"family":"IPv4"}` + "\n" + `{"family":"IPv4","namespace":"ns","service":"web","protocol":"TCP","socket":5,"cluster":["1.2.3.4:5"]}` + "\n", []string{"1.2.3.4:5"}, nil},
		{`{"family":"IPv4","namespace":"ns","service":"web","protocol":"TCP","socket":5,"local":`, []string{"1.2.3.4:5"}, nil},
		{`["1.2.3.4:6"]}` + "\n", nil, []string{"1.2.3.4:6"}},
		{`{"family":"IPv6","namespace":"ns","service":"web","protocol":"TCP"}` + "\n", nil, []string{"1.2.3.4:6"}},
		{`{"family":"IPv4","namespace":"ns","service":"web","protocol":"TCP"}` + "\n", nil, nil},
		{`{"family":"IPv4","namespace":"ns","service":"web","protocol":"TCP","socket":7,"cluster":["1.2.3.4:7"]}` + "\n", []string{"1.2.3.4:7"}, nil},
		{`{"started":true,"family":"IPv6"}` + "\n", []string{"1.2.3.4:7"}, nil},
		{`{"started":true,"family":"IPv4"}` + "\n", nil, nil},
	} {
		if _, err := log.WriteString(step.text); err != nil {
			t.Fatal(err)
		}
		now, err := r.Generation()
		if err != nil || now.Dispatch == last.Dispatch {
			t.Errorf("after %q: generation %v again, %v", step.text, now, err)
		}
		last = now
		look, err := r.Look()
		if err != nil {
			t.Fatal(err)
		}
		state, err := look.Port(corev1.IPv4Protocol, web)
		if err != nil || !slices.Equal(state.Cluster, step.cluster) || !slices.Equal(state.Local, step.local) {
			t.Errorf("after %q: %+v, %v; want %v and %v", step.text, state, err, step.cluster, step.local)
		}
		if cluster, local, err := look.Dispatched(corev1.IPv4Protocol, web); cluster || local || err != nil {
			t.Errorf("after %q: without a rule it is dispatched: %v", step.text, err)
		}
		look.Close()
	}
	if _, err := log.WriteString("nonsense\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Look(); err == nil {
		t.Error("a line that is no JSON is accepted")
	}
}
