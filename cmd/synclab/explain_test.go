package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"synclab/bench/raw"
)

// The script of another user's run is written, and not run.
func TestReproducerOfAnotherUser(t *testing.T) {
	write := writer(t)
	seen := write("seen", "")
	if err := os.Chmod(write("nft", "#!/bin/sh\necho called >>"+seen+"\ncat >/dev/null\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", filepath.Dir(seen)+":"+os.Getenv("PATH"))
	dir := filepath.Join(t.TempDir(), "run")
	w, err := raw.OpenRun(dir, raw.Run{}, false)
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err = z.Write([]byte("add table ip kube-proxy\n"))
	if err := errors.Join(err, z.Close(), w.WriteProfile("1-input-1.gz", packed.Bytes()),
		w.Write(raw.Record{Subject: "s", Rep: 1, Metric: raw.ToolInput, Value: 1, Unit: "s", File: "1-input-1.gz", Method: "nft -f -"}), w.Close(raw.StatusComplete, "")); err != nil {
		t.Fatal(err)
	}
	reproduced := func(name string) (status int, out string, called bool) {
		t.Helper()
		if err := os.WriteFile(seen, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		status, out, errs := invoke(t, "explain", dir, "--reproducer", filepath.Join(t.TempDir(), name), "--budget", "0s")
		text, err := os.ReadFile(seen)
		if err != nil {
			t.Fatal(err)
		}
		return status, out + errs, len(text) > 0
	}
	switch status, out, called := reproduced("own"); {
	case strings.Contains(out, "unshare"): // this machine allows no user namespaces
	case status != 0 || !called:
		t.Errorf("one's own run: status %d, called %v:\n%s", status, called, out)
	}
	if os.Geteuid() != 0 {
		return // only root can give a run away
	}
	if err := os.Lchown(filepath.Join(dir, raw.RunFile), 65534, 65534); err != nil {
		t.Fatal(err)
	}
	if status, out, called := reproduced("theirs"); status != 0 || called || !strings.Contains(out, "belongs to another user") {
		t.Errorf("another user's run: status %d, called %v:\n%s", status, called, out)
	}
}
