package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// runner runs containers of pods: an engine, or host.
type runner interface {
	command(ctx context.Context, id string, c corev1.Container, volumes map[string]string) (*exec.Cmd, error)
	kill(id string) error
	volume(t *testing.T, name string) string
}

// host runs a container's command line as a plain process, where no image or no runtime is.
type host struct {
	binary string // synclab
	dir    string
	cmds   map[string]*exec.Cmd
}

func newHost(t *testing.T) *host {
	t.Helper()
	dir := t.TempDir()
	h := &host{binary: filepath.Join(dir, "synclab"), dir: dir, cmds: map[string]*exec.Cmd{}}
	build := exec.Command("go", "build", "-o", h.binary, "synclab/cmd/synclab")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build.Args, err, out)
	}
	return h
}

func (h *host) volume(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(h.dir, name)
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func (h *host) command(ctx context.Context, id string, c corev1.Container, volumes map[string]string) (*exec.Cmd, error) {
	var inPod []string
	for _, m := range c.VolumeMounts {
		inPod = append(inPod, m.MountPath, volumes[m.Name])
	}
	paths := strings.NewReplacer(inPod...)
	var args []string
	for _, arg := range c.Args {
		args = append(args, paths.Replace(arg))
	}
	cmd := exec.CommandContext(ctx, h.binary, args...)
	cmd.Env = os.Environ()
	for _, v := range c.Env {
		cmd.Env = append(cmd.Env, v.Name+"="+v.Value)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	h.cmds[id] = cmd
	return cmd, nil
}

func (h *host) kill(id string) error { return h.cmds[id].Process.Kill() }

// sweepJob reads deploy's Job, and makes its sweep small: the scenario is the file tiny.yaml in the volume tmp.
func sweepJob(t *testing.T, shards int) batchv1.JobSpec {
	t.Helper()
	text, err := os.ReadFile("../../deploy/sweep/job.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var job batchv1.Job
	if err := yaml.UnmarshalStrict(text, &job); err != nil {
		t.Fatal(err)
	}
	n := int32(shards)
	job.Spec.Completions = &n
	container := &job.Spec.Template.Spec.InitContainers[0]
	replace := map[string]string{
		"size-sweep": "/tmp/tiny.yaml", "--services=5000": "", "--reps=12": "--reps=2", `--shard=(.*)/12`: "--shard=$(JOB_COMPLETION_INDEX)/" + strconv.Itoa(shards),
		`--subjects=\S+`: "--subjects=synclab/iptables-legacy,synclab/nftables",
	}
	for i, arg := range container.Args {
		for pattern, with := range replace {
			if regexp.MustCompile("^" + pattern + "$").MatchString(arg) {
				container.Args[i] = with
				delete(replace, pattern)
			}
		}
	}
	if len(replace) > 0 {
		t.Fatalf("the Job's arguments %q lack %v", container.Args, replace)
	}
	container.Args = slices.DeleteFunc(container.Args, func(arg string) bool { return arg == "" })
	return job.Spec
}

// tinyVolume makes the volume tmp with the scenario tiny.yaml: two sizes, and nothing but a cold start.
func tinyVolume(t *testing.T, r runner) string {
	t.Helper()
	text, err := os.ReadFile("../../cmd/synclab/testdata/tiny.yaml")
	if err != nil {
		t.Fatal(err)
	}
	dir := r.volume(t, "tmp")
	if err := os.WriteFile(filepath.Join(dir, "tiny.yaml"), text, 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// controller plays the controller of an Indexed Job on one machine: one pod a time and index, in the order of indexes.
type controller struct {
	runner
	spec     batchv1.JobSpec
	volumes  map[string]string
	attempts map[int]int // by index
	output   map[int]string
	killFrom int // the index whose first pod is killed in the middle; -1: none
}

// run runs pods until all indexes have ended, and returns those that failed.
func (c *controller) run(t *testing.T) (failed []int) {
	t.Helper()
	for index := range int(*c.spec.Completions) {
		for {
			c.attempts[index]++
			err := c.pod(t, index)
			if err == nil {
				break
			}
			t.Logf("pod %d of index %d: %v", c.attempts[index], index, err)
			if c.attempts[index] > int(*c.spec.BackoffLimitPerIndex) {
				failed = append(failed, index)
				break
			}
		}
	}
	return failed
}

// pod runs the init container of one pod, with the kubelet's variables in its arguments.
func (c *controller) pod(t *testing.T, index int) error {
	container := *c.spec.Template.Spec.InitContainers[0].DeepCopy()
	for i := range container.Args {
		container.Args[i] = strings.ReplaceAll(container.Args[i], "$(JOB_COMPLETION_INDEX)", strconv.Itoa(index))
	}
	for i, v := range container.Env {
		if v.ValueFrom != nil && v.ValueFrom.FieldRef.FieldPath == "spec.nodeName" {
			container.Env[i] = corev1.EnvVar{Name: v.Name, Value: fmt.Sprintf("node-%d", index)}
		}
	}
	kill := index == c.killFrom && c.attempts[index] == 1
	if kill {
		container.Args = append(container.Args, "--json") // its progress is the event to wait for
	}
	id := fmt.Sprintf("synclab-sweep-%d-%d", index, c.attempts[index])
	cmd, err := c.command(t.Context(), id, container, c.volumes)
	if err != nil {
		return err
	}
	var output, errs bytes.Buffer
	cmd.Stderr = &errs
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		fmt.Fprintln(&output, lines.Text())
		if kill && strings.Contains(lines.Text(), secondPass) {
			kill = false
			if err := c.kill(id); err != nil {
				t.Error(err)
			}
		}
	}
	if kill {
		t.Errorf("no line with %q came to kill the pod at", secondPass)
	}
	err = errors.Join(lines.Err(), cmd.Wait())
	c.output[index] = output.String() + errs.String()
	if strings.Contains(c.output[index], "not available") && os.Getenv("SYNCLAB_REQUIRE_NAMESPACE") == "" {
		t.Skip(c.output[index])
	}
	if err != nil {
		return fmt.Errorf("%w\n%s", err, c.output[index])
	}
	return nil
}

// secondPass is in the progress of a run when one measurement is done and another has begun.
const secondPass = `"pass":2,`

// testJob plays an Indexed Job whose second pod is killed, and makes the report of its volume.
func testJob(t *testing.T, r runner) {
	const shards, killed = 2, 1
	c := &controller{
		runner: r, spec: sweepJob(t, shards), attempts: map[int]int{}, output: map[int]string{}, killFrom: killed,
		volumes: map[string]string{"runs": r.volume(t, "runs"), "tmp": tinyVolume(t, r)},
	}
	if failed := c.run(t); len(failed) > 0 {
		t.Fatalf("failed indexes %v: %v", failed, c.output)
	}
	if c.attempts[0] != 1 || c.attempts[killed] != 2 {
		t.Errorf("pods by index: %v; want a second one of the killed pod only", c.attempts)
	}
	// As in the pod of shared-volume/gather.yaml, which has the volume.
	report := *c.spec.Template.Spec.InitContainers[0].DeepCopy()
	report.Args = []string{"report", "--no-png", "/runs"}
	cmd, err := r.command(t.Context(), "report", report, c.volumes)
	if err != nil {
		t.Fatal(err)
	}
	text, err := cmd.CombinedOutput()
	if err != nil || strings.Contains(string(text), "missing") {
		t.Fatalf("report of the volume: %v\n%s", err, text)
	}
	page, err := os.ReadFile(filepath.Join(c.volumes["runs"], "index.html"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"synclab/nftables", "node-0", "node-1"} { // each shard is of its node
		if !strings.Contains(string(page), want) {
			t.Errorf("the page lacks %q; the report:\n%s", want, text)
		}
	}
	// A Job that is started again finds complete shards, and measures nothing.
	c.run(t)
	for index, said := range c.output {
		if !strings.Contains(said, "complete already") {
			t.Errorf("index %d was measured again:\n%s", index, said)
		}
	}
}

// The path of an Indexed Job, with plain processes.
func TestJobOfProcesses(t *testing.T) { testJob(t, newHost(t)) }

// The same with containers of the image, as root and as an ordinary user.
func TestJobOfContainers(t *testing.T) {
	for _, u := range users {
		t.Run(u.name, func(t *testing.T) { testJob(t, newEngine(t, u)) })
	}
}

// The image runs: doctor finds what subjects need, and each kind of subject is measured, one also on the kernel in the image.
func TestImage(t *testing.T) {
	for _, u := range users {
		t.Run(u.name, func(t *testing.T) {
			e := newEngine(t, u)
			shard := *sweepJob(t, 1).Template.Spec.InitContainers[0].DeepCopy()
			shard.Env = nil
			volumes := map[string]string{"runs": e.volume(t, "runs"), "tmp": tinyVolume(t, e)}
			for name, args := range map[string][]string{
				"doctor": {"doctor"},
				"run":    {"compare", "/tmp/tiny.yaml", "--reps=1", "--out=/runs/host", "--subjects=synclab/iptables-legacy,synclab/iptables-nft,synclab/nftables,kube-proxy/nftables"},
				"kernel": {"compare", "/tmp/tiny.yaml", "--reps=1", "--out=/runs/guest", "--subjects=synclab/nftables,kube-proxy/ipvs", "--kernel=6.12"},
			} {
				t.Run(name, func(t *testing.T) {
					shard.Args = args
					cmd, err := e.command(t.Context(), name, shard, volumes)
					if err != nil {
						t.Fatal(err)
					}
					text, err := cmd.CombinedOutput()
					t.Logf("%s", text)
					if err != nil {
						t.Errorf("%v", err)
					}
				})
			}
		})
	}
}
