package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"synclab/bench/raw"
	"synclab/reports/model"
)

// The newest valid calibration is used; one of another kernel only if allowed, and only if there is no valid one.
func TestNewestModel(t *testing.T) {
	root := t.TempDir()
	here := model.Here{Versions: raw.Versions{Kernel: "6.18"}, Machine: raw.Machine{CPU: "EPYC", CPUs: 2}, Subjects: []string{"synclab/nftables"}}
	status := ""
	write := func(name, kernel, subject string, age time.Duration) {
		t.Helper()
		m := model.Model{Run: name, Confidence: 0.9, Status: status, Versions: here.Versions, Machine: here.Machine, Subjects: []*model.Subject{{Name: subject}}}
		m.Versions.Kernel = kernel
		text, err := json.Marshal(m)
		dir := filepath.Join(root, name)
		file, made := filepath.Join(dir, model.File), time.Unix(1_700_000_000, 0).Add(-age)
		if err := errors.Join(err, os.MkdirAll(dir, 0o755), os.WriteFile(file, text, 0o644), os.Chtimes(file, made, made)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := newestModel(root, here); err == nil || !strings.Contains(err.Error(), "synclab calibrate --subjects synclab/nftables") {
		t.Fatalf("without any: %v", err)
	}
	status = raw.StatusInterrupted
	write("interrupted", "6.18", "synclab/nftables", 0)
	if dir, err := newestModel(root, here); err != nil || filepath.Base(dir) != "interrupted" {
		t.Fatalf("an interrupted one rather than none: %s, %v", dir, err)
	}
	if err := os.RemoveAll(filepath.Join(root, "interrupted")); err != nil {
		t.Fatal(err)
	}
	status = ""
	write("elsewhere", "6.19", "synclab/nftables", time.Minute)
	write("lacking", "6.18", "kube-proxy/nftables", 2*time.Minute)
	if _, err := newestModel(root, here); err == nil || !strings.Contains(err.Error(), "kernel") || !strings.Contains(err.Error(), "no subject") {
		t.Fatalf("it says %v", err)
	}
	allowed := here
	allowed.Elsewhere = true
	if dir, err := newestModel(root, allowed); err != nil || filepath.Base(dir) != "elsewhere" {
		t.Fatalf("%s, %v", dir, err)
	}
	write("old", "6.18", "synclab/nftables", time.Hour)
	status = raw.StatusInterrupted
	write("interrupted", "6.18", "synclab/nftables", 0)
	status = raw.StatusComplete
	write("older", "6.18", "synclab/nftables", 2*time.Hour)
	for _, h := range []model.Here{here, allowed} {
		if dir, err := newestModel(root, h); err != nil || filepath.Base(dir) != "old" {
			t.Fatalf("%s, %v", dir, err)
		}
	}
}
