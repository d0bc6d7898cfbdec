package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"synclab/bench/raw"
	"synclab/reports/model"
)

// A calibration of two sizes makes an ordinary run, and a model that predicts a third size, for this machine only.
func TestCalibrate(t *testing.T) {
	out := filepath.Join(t.TempDir(), "run")
	const subject = "synclab/nftables"
	status, stdout, stderr := invoke(t, "calibrate", "--subjects", subject, "--max-services", "20", "--budget", "20s", "--seed", "3", "--out", out)
	if strings.Contains(stderr, "not available") && os.Getenv("SYNCLAB_REQUIRE_NAMESPACE") == "" {
		t.Skip(stderr)
	}
	if status != exitDone {
		t.Fatalf("status %d\n%s%s", status, stdout, stderr)
	}
	run, records, err := raw.ReadRun(out)
	if err != nil || run.Status != raw.StatusComplete || run.Seed != 3 || run.Feed != raw.FeedAPI {
		t.Fatalf("%+v, %v", run, err)
	}
	for _, metric := range []raw.Metric{raw.FullSync, raw.PartialSync, raw.Plan, raw.ToolSys, raw.Changes, raw.PeakRSS, raw.RulesKernel, raw.FirstPacket} {
		if count(records, subject, metric) == 0 {
			t.Errorf("no %s", metric)
		}
	}
	m, remarks, err := model.Load(out, model.Here{Versions: run.Versions, Machine: run.Machine})
	if err != nil || len(remarks) > 0 {
		t.Fatal(err, remarks)
	}
	s, err := m.Subject(subject)
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range []model.Query{{Kind: model.Full}, {Kind: model.Partial}, {Quantity: model.ToolSys, Kind: model.Full}, {Quantity: model.PeakRSS}, {Quantity: model.Elements}} {
		q.Services, q.Endpoints = 60, 10
		p, err := s.Predict(q)
		if err != nil || !(0 < p.Low && p.Low < p.Median && p.Median < p.High) || p.Basis != model.Extrapolated {
			t.Errorf("%+v: %+v, %v", q, p, err)
		}
	}
	other := model.Here{Versions: run.Versions, Machine: run.Machine}
	other.Versions.Kernel = "1.0"
	if _, _, err := model.Load(out, other); err == nil || !strings.Contains(err.Error(), "kernel") {
		t.Errorf("for another kernel: %v", err)
	}
	if !strings.Contains(stdout, model.File) || !strings.Contains(stdout, subject) || !strings.Contains(stderr, " left") {
		t.Errorf("it says\n%s%s", stdout, stderr)
	}
	first, err := os.ReadFile(filepath.Join(out, model.File))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(out, model.File)); err != nil {
		t.Fatal(err)
	}
	status, again, stderr := invoke(t, "calibrate", "--fit", out, "--seed", "3")
	second, err := os.ReadFile(filepath.Join(out, model.File))
	if status != exitDone || err != nil || !bytes.Equal(first, second) || again != stdout {
		t.Errorf("fitted again: status %d, %v, %d and %d bytes\n%s%s", status, err, len(first), len(second), again, stderr)
	}
}

// Mistakes are refused before anything starts.
func TestCalibrateRefuses(t *testing.T) {
	for _, args := range [][]string{
		{"--subjects", "none/nowhere"}, {"--budget", "0s"}, {"--max-services", "5"}, {"--hold-out", "--max-services", "40"}, {"--force"}, {"a-scenario"}, {"--max-time", "3s"}, {"--kernel", "6.12"}, {"--fit", "runs", "--budget", "3m"},
	} {
		if status, _, stderr := invoke(t, append([]string{"calibrate"}, args...)...); status != exitUsage {
			t.Errorf("%v: status %d, %s", args, status, stderr)
		}
	}
}
