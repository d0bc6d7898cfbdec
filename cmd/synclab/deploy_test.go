package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"synclab/scenarios"
)

const deployFolder = "../../deploy"

// manifest decodes one file as strictly as an API server with field validation.
func manifest(t *testing.T, file string) runtime.Object {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(deployFolder, file))
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(text, []byte("\n---\n")) {
		t.Fatalf("%s: one object a file", file)
	}
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	object, _, err := decoder.Decode(text, nil, nil)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return object
}

// kustomization has the fields of kustomization.yaml that deploy uses.
type kustomization struct {
	APIVersion string              `json:"apiVersion"`
	Kind       string              `json:"kind"`
	Namespace  string              `json:"namespace"`
	Resources  []string            `json:"resources"`
	Patches    []map[string]string `json:"patches"`
	Images     []map[string]string `json:"images"`
}

// Every applied file decodes strictly, and none is missing in a kustomization.
func TestManifestsDecode(t *testing.T) {
	for _, folder := range []string{"sweep", "shared-volume"} {
		text, err := os.ReadFile(filepath.Join(deployFolder, folder, "kustomization.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		var k kustomization
		if err := yaml.UnmarshalStrict(text, &k); err != nil {
			t.Fatalf("%s: %v", folder, err)
		}
		applied := []string{"kustomization.yaml", "gather.yaml"} // gather.yaml is applied separately, after the sweep
		for _, file := range k.Resources {
			if !strings.HasPrefix(file, "..") {
				applied = append(applied, file)
			}
		}
		for _, patch := range k.Patches {
			applied = append(applied, patch["path"])
		}
		files, err := filepath.Glob(filepath.Join(deployFolder, folder, "*.yaml"))
		if err != nil || len(files) == 0 {
			t.Fatal(err, files)
		}
		for _, file := range files {
			if !slices.Contains(applied, filepath.Base(file)) {
				t.Errorf("%s is not part of the kustomization", file)
			}
			if filepath.Base(file) != "kustomization.yaml" {
				manifest(t, filepath.Join(folder, filepath.Base(file)))
			}
		}
	}
}

// The Job measures exactly its number of shards, with arguments that this program accepts.
func TestSweepJobIsConsistent(t *testing.T) {
	spec := manifest(t, "sweep/job.yaml").(*batchv1.Job).Spec
	if spec.CompletionMode == nil || *spec.CompletionMode != batchv1.IndexedCompletion || spec.Completions == nil || spec.Parallelism == nil {
		t.Fatalf("no Indexed Job: %+v", spec)
	}
	n := int(*spec.Completions)
	if int(*spec.Parallelism) > n || spec.BackoffLimitPerIndex == nil || *spec.MaxFailedIndexes > *spec.Completions ||
		spec.PodFailurePolicy != nil && (*spec.PodReplacementPolicy != batchv1.Failed || spec.Template.Spec.RestartPolicy != corev1.RestartPolicyNever) {
		t.Errorf("fields of an Indexed Job that the API server refuses: %+v", spec)
	}
	if spec.ActiveDeadlineSeconds == nil {
		t.Error("a shard that hangs, or is never gathered, blocks its node forever")
	}
	args := spec.Template.Spec.InitContainers[0].Args
	cmd, rest, err := newRoot(streams{strings.NewReader(""), &bytes.Buffer{}, &bytes.Buffer{}}).Find(args)
	if err != nil || cmd.Name() != "compare" {
		t.Fatalf("%v: command %v, %v", args, cmd.Name(), err)
	}
	// The kubelet's value of $(JOB_COMPLETION_INDEX) in the last pod.
	for i := range rest {
		rest[i] = strings.ReplaceAll(rest[i], "$(JOB_COMPLETION_INDEX)", strconv.Itoa(n-1))
	}
	if err := cmd.ParseFlags(rest); err != nil {
		t.Fatal(err)
	}
	if _, err := scenarios.Load(cmd.Flags().Arg(0), nil, scenarios.Sizes{}); err != nil {
		t.Error(err)
	}
	value := func(name string) string { return cmd.Flags().Lookup(name).Value.String() }
	if want := fmt.Sprintf("%d/%d", n-1, n); value("shard") != want {
		t.Errorf("%d completions, but the last pod has --shard %s, want %s", n, value("shard"), want)
	}
	subjects, err := cmd.Flags().GetStringSlice("subjects")
	if err != nil || len(subjects) < 2 || checkSubjects(cmd, subjects) != nil {
		t.Errorf("subjects %v, %v: they must be named, or nodes with other tools divide another sweep", subjects, err)
	}
}

// Pods have no more rights than the lab needs.
func TestPodsHaveFewRights(t *testing.T) {
	job := manifest(t, "sweep/job.yaml").(*batchv1.Job).Spec.Template.Spec
	patched := manifest(t, "shared-volume/job.patch.yaml").(*batchv1.Job).Spec.Template.Spec
	gather := manifest(t, "shared-volume/gather.yaml").(*corev1.Pod).Spec
	for name, pod := range map[string]corev1.PodSpec{"job": job, "gather": gather} {
		if pod.HostNetwork || pod.HostPID || pod.HostIPC || pod.HostUsers == nil || *pod.HostUsers {
			t.Errorf("%s: it is in a namespace of the node", name)
		}
		if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
			t.Errorf("%s: it gets a token", name)
		}
		if s := pod.SecurityContext; s == nil || s.SeccompProfile == nil || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
			t.Errorf("%s: no seccomp profile", name)
		}
		for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
			checkContainer(t, c)
		}
	}
	for _, v := range slices.Concat(job.Volumes, patched.Volumes, gather.Volumes) {
		if v.HostPath != nil || v.EmptyDir == nil && v.PersistentVolumeClaim == nil {
			t.Errorf("volume %s: %+v", v.Name, v.VolumeSource)
		}
	}
	shard := job.InitContainers[0]
	if got := shard.SecurityContext.Capabilities.Add; !slices.Equal(got, []corev1.Capability{"SYS_ADMIN", "NET_ADMIN", "NET_RAW"}) {
		t.Errorf("the shard's capabilities: %v", got)
	}
	cpu := shard.Resources.Limits[corev1.ResourceCPU]
	if cpu.MilliValue()%1000 != 0 {
		t.Errorf("%s CPUs: parts of one are shared with others", cpu.String())
	}
	rules := job.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if len(rules) != 1 || rules[0].TopologyKey != corev1.LabelHostname {
		t.Errorf("several shards may share a node: %+v", rules)
	}
}

// Images are pinned: no moving tags.
func TestImagesArePinned(t *testing.T) {
	err := filepath.WalkDir(deployFolder, func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) != ".yaml" || err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		for _, image := range regexp.MustCompile(`(?m)(?:image|newTag): *(\S+)`).FindAllStringSubmatch(string(text), -1) {
			isTag := strings.HasPrefix(image[0], "newTag")
			if strings.Contains(image[1], "latest") || !isTag && image[1] != "synclab" && !strings.Contains(image[1], ":") {
				t.Errorf("%s: %s: a tag that moves", path, image[0])
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func checkContainer(t *testing.T, c corev1.Container) {
	t.Helper()
	s := c.SecurityContext
	switch {
	case s == nil || s.Capabilities == nil || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}):
		t.Errorf("container %s keeps capabilities", c.Name)
	case s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem:
		t.Errorf("container %s can write to its root", c.Name)
	case s.Privileged != nil && *s.Privileged:
		t.Errorf("container %s is privileged", c.Name)
	case len(s.Capabilities.Add) == 0 && (s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation):
		t.Errorf("container %s may gain rights", c.Name)
	}
	for _, resource := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		request, limit := c.Resources.Requests[resource], c.Resources.Limits[resource]
		if request.IsZero() || request.Cmp(limit) != 0 {
			t.Errorf("container %s: %s request %s, limit %s; want the same", c.Name, resource, request.String(), limit.String())
		}
	}
}

// doctor.yaml's results apply to shards: its pod has the same rights.
func TestDoctorPodIsLikeAShard(t *testing.T) {
	job := manifest(t, "sweep/job.yaml").(*batchv1.Job).Spec.Template.Spec
	doctor := manifest(t, "doctor.yaml").(*corev1.Pod).Spec
	if diff := cmp.Diff(job.InitContainers[0].SecurityContext, doctor.Containers[0].SecurityContext); diff != "" {
		t.Errorf("containers (-shard +doctor):\n%s", diff)
	}
	if diff := cmp.Diff(job.SecurityContext, doctor.SecurityContext); diff != "" || !cmp.Equal(job.HostUsers, doctor.HostUsers) {
		t.Errorf("pods (-shard +doctor):\n%s", diff)
	}
}

// gather runs gather.sh in dir with a fake kubectl that reads dir/fake. It returns the folder of the gathered shards.
func gather(t *testing.T, dir, kubectl string) (out, said string, err error) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "kubectl"), []byte(kubectl), 0o755); err != nil {
		t.Fatal(err)
	}
	out = filepath.Join(dir, "sweep")
	cmd := exec.CommandContext(t.Context(), "sh", filepath.Join(deployFolder, "gather.sh"), out)
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "FAKE="+filepath.Join(dir, "fake"), "GATHER_EVERY=0")
	text, err := cmd.CombinedOutput()
	return out, string(text), err
}

// gather.sh fetches each folder once, ends its pod, retries after a lost pod, and ends with the Job.
func TestGather(t *testing.T) {
	dir := t.TempDir()
	// A cluster of two pods that have measured; the first call of tar in the second pod fails.
	const kubectl = `#!/bin/sh
cd "$FAKE"
shift 2
case $1 in
get)
	case $2 in
	pods) for p in a=3 b=10; do [ -e ${p%=*}/gathered ] || printf '%s ' $p; done ;;
	job) [ ! -e a/gathered ] || [ ! -e b/gathered ] || echo Complete ;;
	esac ;;
exec)
	case $6 in
	tar)
		if [ $2 = b ] && [ ! -e tried ]; then touch tried; echo lost >&2; exit 1; fi
		tar -C $2 -cf - . ;;
	touch) touch $2/gathered; echo $2 >>order ;;
	esac ;;
esac
`
	fake := filepath.Join(dir, "fake")
	for pod, shard := range map[string]string{"a": "shard-3-of-12", "b": "shard-10-of-12"} {
		folder := filepath.Join(fake, pod, shard)
		if err := errors.Join(os.MkdirAll(folder, 0o755), os.WriteFile(filepath.Join(folder, "run.json"), []byte("{}"), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	out, said, err := gather(t, dir, kubectl)
	if err != nil || !strings.Contains(said, "not gathered from b yet") {
		t.Errorf("%v\n%s", err, said)
	}
	for _, shard := range []string{"shard-3-of-12", "shard-10-of-12"} {
		if _, err := os.Stat(filepath.Join(out, shard, "run.json")); err != nil {
			t.Error(err)
		}
	}
	if order, err := os.ReadFile(filepath.Join(fake, "order")); err != nil || string(order) != "a\nb\n" {
		t.Errorf("ended pods: %q, %v; want each once", order, err)
	}
}

// onePod is a kubectl of a cluster with one pod, a, which sends its folder.
const onePod = `#!/bin/sh
cd "$FAKE"
shift 2
case $1 in
get)
	case $2 in
	pods) printf a=0 ;;
	job) [ ! -e asked ] || echo Complete; touch asked ;;
	esac ;;
exec)
	case $6 in
	tar) tar -C a -cf - . ;;
	touch) touch let-go ;;
	esac ;;
esac
`

// An archive with a link is refused, and nothing of it is unpacked.
func TestGatherRefusesLinks(t *testing.T) {
	dir := t.TempDir()
	fake, victim := filepath.Join(dir, "fake"), filepath.Join(dir, "victim")
	shard := filepath.Join(fake, "a", "shard-0-of-1")
	if err := errors.Join(os.MkdirAll(shard, 0o755), os.WriteFile(filepath.Join(shard, "run.json"), []byte("{}"), 0o644),
		os.Symlink(victim, filepath.Join(shard, "index.html.new"))); err != nil {
		t.Fatal(err)
	}
	out, said, _ := gather(t, dir, onePod) // it fails, since no shard is left in the end
	if !strings.Contains(said, "a: refused") || !strings.Contains(said, "index.html.new -> "+victim) {
		t.Errorf("said\n%s", said)
	}
	entries, err := os.ReadDir(out)
	if err != nil || len(entries) != 0 {
		t.Errorf("unpacked %v, %v", entries, err)
	}
	if _, err := os.Stat(filepath.Join(fake, "let-go")); err == nil {
		t.Error("the pod was ended")
	}
}

// The size of a pod's archive is limited, also with sparse files. Shards of other pods are not accepted.
func TestGatherBounds(t *testing.T) {
	t.Setenv("GATHER_LIMIT", "1")
	for about, size := range map[string]int64{"small": 1 << 10, "sparse": 3 << 20} {
		dir := t.TempDir()
		fake := filepath.Join(dir, "fake")
		own, other := filepath.Join(fake, "a", "shard-0-of-2"), filepath.Join(fake, "a", "shard-1-of-2")
		records := filepath.Join(own, "records.jsonl")
		if err := errors.Join(os.MkdirAll(own, 0o755), os.MkdirAll(other, 0o755), os.WriteFile(records, nil, 0o644), os.Truncate(records, size)); err != nil {
			t.Fatal(err)
		}
		kubectl := onePod
		if about == "sparse" {
			kubectl = strings.Replace(kubectl, "tar -C a", "tar --sparse -C a", 1)
		}
		out, said, _ := gather(t, dir, kubectl)
		entries, err := os.ReadDir(out)
		var names []string
		for _, entry := range entries {
			names = append(names, entry.Name())
		}
		switch {
		case err != nil:
			t.Error(err)
		case about == "small" && !slices.Equal(names, []string{"shard-0-of-2"}):
			t.Errorf("of a pod with the index 0: %v\n%s", names, said)
		case about == "sparse" && (len(names) > 0 || !strings.Contains(said, "a: refused: its files are larger than 1 MiB")):
			t.Errorf("of a pod with a too large archive: %v\n%s", names, said)
		}
	}
}
