package machine

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"synclab/bench/lab/upstream"
)

// The requirements to build kube-proxy are checked, and nothing is built.
func TestExamineKubeProxy(t *testing.T) {
	cache := t.TempDir()
	o := upstream.Options{Cache: cache, CachedOnly: true}
	if c := examineKubeProxy(t.Context(), o); c.Status != Absent || !strings.Contains(c.Remedy, "synclab build kube-proxy") {
		t.Errorf("not built: %+v", c)
	}
	path := filepath.Join(cache, fmt.Sprintf("kube-proxy-%s-go1.20-%s", upstream.Pinned, runtime.GOARCH))
	if err := os.WriteFile(path, []byte("#!/bin/sh\necho Kubernetes "+upstream.Pinned+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if c := examineKubeProxy(t.Context(), o); c.Status != Absent {
		t.Errorf("a binary without a record of its sources: %+v", c)
	}
	if c := examineKubeProxy(t.Context(), upstream.Options{Path: path}); c.Status != OK || !strings.Contains(c.Detail, upstream.Pinned) || !strings.Contains(c.Detail, path) {
		t.Errorf("built: %+v", c)
	}
	t.Setenv("PATH", t.TempDir())
	if c := examineGo(t.Context()); c.Status != Absent || c.Remedy == "" {
		t.Errorf("without Go: %+v", c)
	}
}

// A cache folder that cannot be written is reported, with the folder used instead.
func TestExamineCache(t *testing.T) {
	home := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", home)
	if c := examineCache(); c.Status != OK || !strings.Contains(c.Detail, filepath.Join(home, "synclab")) {
		t.Errorf("writable: %+v", c)
	}
	file := filepath.Join(home, "file") // not even root can write below it
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_CACHE_HOME", file)
	t.Setenv("TMPDIR", home)
	if c := examineCache(); c.Status != Warn || !strings.Contains(c.Detail, home) {
		t.Errorf("not writable: %+v", c)
	}
}
