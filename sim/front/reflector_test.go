package front

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	clientfeatures "k8s.io/client-go/features"
	clientfeaturestesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"synclab/scenarios"
)

// TestInformersEndWithTheClustersObjects feeds real shared informers through all faults of watches. They must end with
// exactly the cluster's objects, for all ways to list.
func TestInformersEndWithTheClustersObjects(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	for _, contentType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		for _, streaming := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/watchList=%v", strings.TrimPrefix(contentType, "application/"), streaming), func(t *testing.T) {
				clientfeaturestesting.SetFeatureDuringTest(t, clientfeatures.WatchListClient, streaming)
				informersThroughFaults(t, contentType, streaming)
			})
		}
	}
}

func informersThroughFaults(t *testing.T, contentType string, streaming bool) {
	var streams, lists atomic.Int64
	l := newLab(t, scenarios.Shape{Services: 60, Endpoints: scenarios.Endpoints{Count: 3}}, Options{
		History:       64, // so that a watch that misses some time must list again
		BookmarkEvery: time.Millisecond,
		Answered: func(r Request) {
			switch {
			case strings.Contains(r.URI, "sendInitialEvents=true"):
				streams.Add(1)
			case !strings.Contains(r.URI, "watch=true"):
				lists.Add(1)
			}
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	factory := informers.NewSharedInformerFactory(l.client(t, contentType), 0)
	defer factory.Shutdown()
	defer cancel()
	followed := []cache.SharedIndexInformer{
		factory.Core().V1().Services().Informer(), factory.Discovery().V1().EndpointSlices().Informer(), factory.Core().V1().Nodes().Informer(),
		factory.Core().V1().Namespaces().Informer(), factory.Networking().V1().ServiceCIDRs().Informer(),
	}
	changed := make(chan struct{}, 1)
	for _, informer := range followed {
		notify := func(any) {
			select {
			case changed <- struct{}{}:
			default:
			}
		}
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: notify, DeleteFunc: notify, UpdateFunc: func(_, o any) { notify(o) }}); err != nil {
			t.Fatal(err)
		}
	}
	factory.StartWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), followed[0].HasSynced, followed[1].HasSynced, followed[2].HasSynced, followed[3].HasSynced, followed[4].HasSynced) {
		t.Fatal("never synced")
	}
	for _, fault := range []func(){
		func() {},
		l.front.DropWatches,
		func() { l.front.Forget(); l.front.DropWatches() },
		func() { l.front.Pause(true); l.front.DropWatches() },
		func() { l.front.Pause(false) },
	} {
		l.churn(t, 20)
		fault()
		for _, kind := range []string{"services", "readiness"} {
			trace, err := l.world.Churn(scenarios.Churn{Rate: 1e6, Events: 100, Kind: kind})
			if err != nil {
				t.Fatal(err)
			}
			l.change(t, trace...)
		}
	}
	defer func() {
		if got := [2]bool{streams.Load() > 0, lists.Load() > 0}; got != [2]bool{streaming, !streaming} {
			t.Errorf("%d streaming lists and %d lists with watchList=%v", streams.Load(), lists.Load(), streaming)
		}
	}()
	o := l.world.Objects()
	for i, want := range []map[string]string{contents(t, o.Services), contents(t, o.Slices), contents(t, o.Nodes)} {
		for {
			got := contents(t, objectsOf(followed[i]))
			if cmp.Equal(got, want) {
				break
			}
			select {
			case <-changed:
			case <-time.After(20 * time.Second): // the reflector's own backoff is below
				t.Fatalf("informer %d: %s", i, cmp.Diff(want, got))
			}
		}
	}
}

func objectsOf(informer cache.SharedIndexInformer) []runtime.Object {
	var all []runtime.Object
	for _, o := range informer.GetStore().List() {
		all = append(all, o.(runtime.Object))
	}
	return all
}

// contents returns objects in JSON by key, without the fields that the API adds.
func contents[T runtime.Object](t testing.TB, objects []T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, o := range objects {
		data, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		var object map[string]any
		if err := json.Unmarshal(data, &object); err != nil {
			t.Fatal(err)
		}
		delete(object, "kind")
		delete(object, "apiVersion")
		meta := object["metadata"].(map[string]any)
		delete(meta, "resourceVersion")
		if data, err = json.Marshal(object); err != nil {
			t.Fatal(err)
		}
		all[fmt.Sprint(meta["namespace"], "/", meta["name"])] = string(data)
	}
	return all
}
