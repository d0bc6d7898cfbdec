package front

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// A client without the token gets nothing. Neither does a web page whose host name leads here (DNS rebinding).
func TestGuard(t *testing.T) {
	const token = "secret"
	l := labOf(t, fewServices(), Options{Token: token})
	for _, c := range []struct {
		host, authorization string
		code                int
	}{
		{"", "Bearer " + token, http.StatusOK},
		{"localhost:1", "Bearer " + token, http.StatusOK},
		{"[::1]:1", "Bearer " + token, http.StatusOK},
		{"", "", http.StatusUnauthorized},
		{"", "Bearer other", http.StatusUnauthorized},
		{"", token, http.StatusUnauthorized},
		{"evil.example", "Bearer " + token, http.StatusForbidden},
		{"127.0.0.1.evil.example:8001", "Bearer " + token, http.StatusForbidden},
		{"evil.example", "", http.StatusForbidden},
	} {
		for _, path := range []string{"/api/v1/services", "/version", "/healthz", "/apis"} {
			r, err := http.NewRequest(http.MethodGet, l.url+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", c.authorization)
			if c.host != "" {
				r.Host = c.host
			}
			response, err := http.DefaultTransport.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			if response.StatusCode != c.code {
				t.Errorf("%s, host %q, %q: %s, want %d", path, c.host, c.authorization, response.Status, c.code)
			}
		}
	}
}

// A client with the kubeconfig gets in, and the connection is encrypted.
func TestCredentials(t *testing.T) {
	credentials, err := NewCredentials("127.0.0.1", "localhost")
	if err != nil {
		t.Fatal(err)
	}
	l := labOf(t, fewServices(), Options{Token: credentials.Token})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- l.front.Serve(ctx, credentials.Secure(listener)) }()
	defer func() {
		cancel()
		<-served
	}()
	list := func(c *Credentials) (int, error) {
		data, err := Kubeconfig("https://"+listener.Addr().String(), c)
		if err != nil {
			t.Fatal(err)
		}
		config, err := clientcmd.RESTConfigFromKubeConfig(data)
		if err != nil {
			t.Fatal(err)
		}
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		services, err := client.CoreV1().Services("").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return 0, err
		}
		return len(services.Items), nil
	}
	if n, err := list(credentials); err != nil || n == 0 {
		t.Errorf("with the kubeconfig: %d, %v", n, err)
	}
	if _, err := list(&Credentials{CA: credentials.CA}); !apierrors.IsUnauthorized(err) {
		t.Errorf("without the token: %v", err)
	}
	other, err := NewCredentials("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := list(&Credentials{CA: other.CA, Token: credentials.Token}); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("with another front's certificate: %v", err)
	}
}

// Posts that a web page may send without a preflight request are refused.
func TestMediaTypesOfPosts(t *testing.T) {
	l := labOf(t, fewServices(), Options{})
	for kind, code := range map[string]int{
		"": 415, "text/plain": 415, "application/x-www-form-urlencoded": 415, "application/json": 201, "application/json; charset=utf-8": 201,
	} {
		body := strings.NewReader(fmt.Sprintf(`{"metadata":{"name":"e%d"}}`, len(kind)))
		if a := l.ask(t, "POST", "/api/v1/namespaces/one/events", body, "Content-Type", kind); a.StatusCode != code {
			t.Errorf("%q: %s, want %d", kind, a.Status, code)
		}
	}
}

// There are no more watches than the limit, and a watch that ends makes room.
func TestMaxWatches(t *testing.T) {
	l := labOf(t, fewServices(), Options{MaxWatches: 2})
	client := l.client(t, k8sruntime.ContentTypeJSON).CoreV1().Services("")
	first, err := client.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	second, err := client.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer second.Stop()
	if a := l.ask(t, http.MethodGet, "/api/v1/services?watch=1", nil); a.StatusCode != http.StatusTooManyRequests {
		t.Errorf("the third: %s", a.Status)
	}
	first.Stop()
	for l.front.watches.Load() > 1 {
		time.Sleep(time.Millisecond)
	}
	third, err := client.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatalf("after one has ended: %v", err)
	}
	third.Stop()
}

// However much is posted, little is kept.
func TestEventsTakeLittleMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	l := labOf(t, fewServices(), Options{})
	note := strings.Repeat("x", bodyLimit-200)
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	const posts = 3000
	for i := range posts {
		body := strings.NewReader(fmt.Sprintf(`{"metadata":{"name":"e%d"},"message":"%s"}`, i, note))
		if a := l.ask(t, "POST", "/api/v1/namespaces/one/events", body, "Content-Type", "application/json"); a.StatusCode != http.StatusCreated {
			t.Fatalf("post %d: %s", i, a.Status)
		}
	}
	more := strings.NewReader(fmt.Sprintf(`{"metadata":{"annotations":{"more":"%s"}}}`, note))
	if a := l.ask(t, "PATCH", fmt.Sprintf("/api/v1/namespaces/one/events/e%d", posts-1), more, "Content-Type", "application/strategic-merge-patch+json"); a.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("a patch that makes an Event too large: %s", a.Status)
	}
	// The bound covers both groups, objects and encodings, kept Events and those that watches may still request.
	if grown, most := heap()-before, int64(8*1000*bodyLimit); grown > most {
		t.Errorf("%d posts take %d MiB, want at most %d", posts, grown>>20, most>>20)
	}
}
