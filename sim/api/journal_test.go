package api

import (
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"synclab/scenarios"
	"synclab/sim"
)

// TestLabelsChange: a watch with a selector gets an event when an object leaves the selection or enters it, also if
// the watch begins at an older version.
func TestLabelsChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := objectsOf(t, scenarios.Shape{Services: 2}, 1)
		c := newLoaded(t, o)
		defer c.Stop()
		labelled := func(i int, value string) *corev1.Service {
			s := o.Services[i].DeepCopy()
			s.Labels = map[string]string{"app": value}
			return s
		}
		client := c.Client().CoreV1().Services(metav1.NamespaceAll)
		list, err := client.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		from := metav1.ListOptions{LabelSelector: "app in (x,y)", ResourceVersion: list.ResourceVersion}
		now, err := client.Watch(t.Context(), from)
		if err != nil {
			t.Fatal(err)
		}
		a, b := o.Services[0].Name, o.Services[1].Name
		apply(t, c, sim.Update, labelled(0, "z")) // outside before and after
		apply(t, c, sim.Update, labelled(0, "x")) // enters
		apply(t, c, sim.Update, labelled(0, "y")) // stays
		apply(t, c, sim.Update, labelled(0, "z")) // leaves
		apply(t, c, sim.Update, labelled(1, "x"))
		apply(t, c, sim.Delete, labelled(1, "other")) // the last state counts
		apply(t, c, sim.Delete, labelled(0, "x"))     // here, too
		resumed, err := client.Watch(t.Context(), from)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range []watch.Interface{now, resumed} {
			for i, want := range []struct {
				event watch.EventType
				name  string
				app   string
			}{{watch.Added, a, "x"}, {watch.Modified, a, "y"}, {watch.Deleted, a, "y"}, {watch.Added, b, "x"}, {watch.Deleted, b, "x"}} {
				synctest.Wait()
				select {
				case e := <-w.ResultChan():
					if s := e.Object.(*corev1.Service); e.Type != want.event || s.Name != want.name || s.Labels["app"] != want.app {
						t.Errorf("event %d: %s %s %s, want %s %s %s", i, e.Type, s.Name, s.Labels["app"], want.event, want.name, want.app)
					}
				default:
					t.Errorf("event %d is missing: %s %s", i, want.event, want.name)
				}
			}
			synctest.Wait()
			select {
			case e := <-w.ResultChan():
				t.Errorf("one event too many: %v", e.Type)
			default:
			}
			w.Stop()
		}
	})
}
