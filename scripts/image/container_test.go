package main

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// user is how containers run: as root with a user namespace of many users, as a pod with hostUsers: false, or as an
// ordinary user with a namespace of one.
type user struct {
	name      string
	rootless  bool
	first     int // user of the machine that is root in the container
	users     int
	container []string // words before the runtime's command
}

// unprivileged is a user without rights and without a range of other users.
const unprivileged = 65534

var users = []user{
	{name: "root", first: 1 << 17, users: 1 << 16},
	{name: "rootless", rootless: true, first: unprivileged, users: 1, container: []string{"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"}},
}

// engine runs containers of an image with crun or runc.
type engine struct {
	user
	runtime string
	image   imageConfig
	rootfs  string
	dir     string // for bundles
}

// newEngine unpacks the image of $SYNCLAB_IMAGE, or skips the test.
func newEngine(t *testing.T, u user) *engine {
	t.Helper()
	image := os.Getenv("SYNCLAB_IMAGE")
	if image == "" {
		t.Skip("SYNCLAB_IMAGE names no image: make image-test runs this test")
	}
	if os.Geteuid() != 0 {
		t.Skip("unpacking the image for other users needs root")
	}
	runtime, err := exec.LookPath("crun")
	if err != nil {
		if runtime, err = exec.LookPath("runc"); err != nil {
			t.Skip("no crun and no runc on PATH")
		}
	}
	dir, err := os.MkdirTemp("", "synclab-container-*") // t.TempDir's parents are closed to other users
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	e := &engine{user: u, runtime: runtime, rootfs: filepath.Join(dir, "rootfs"), dir: dir}
	m, config := openImage(t, image)
	e.image = config
	for _, d := range m.Layers {
		eachFile(t, image, d, func(h *tar.Header, r io.Reader) {
			if err := e.unpack(h, r); err != nil {
				t.Fatalf("%s: %v", h.Name, err)
			}
		})
	}
	if err := errors.Join(os.Chown(e.dir, u.first, u.first), os.Chown(e.rootfs, u.first, u.first)); err != nil {
		t.Fatal(err)
	}
	return e
}

// unpack writes one file of the image, owned by the user that is its owner in the container.
func (e *engine) unpack(h *tar.Header, r io.Reader) error {
	path := filepath.Join(e.rootfs, h.Name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	var err error
	switch h.Typeflag {
	case tar.TypeDir:
		if err = os.Mkdir(path, 0o755); errors.Is(err, fs.ErrExist) {
			err = nil
		}
	case tar.TypeReg:
		var f *os.File
		if f, err = os.Create(path); err == nil {
			_, err = io.Copy(f, r)
			err = closeAll(err, f)
		}
	case tar.TypeSymlink:
		err = os.Symlink(h.Linkname, path)
	case tar.TypeLink:
		return os.Link(filepath.Join(e.rootfs, h.Linkname), path)
	default:
		err = fmt.Errorf("a file of type %c", h.Typeflag)
	}
	uid, gid := e.first+h.Uid, e.first+h.Gid
	if e.users == 1 {
		uid, gid = e.first, e.first
	}
	if err = errors.Join(err, os.Lchown(path, uid, gid)); err == nil && h.Typeflag != tar.TypeSymlink {
		err = os.Chmod(path, h.FileInfo().Mode().Perm())
	}
	return err
}

// volume makes an empty folder that containers may write to.
func (e *engine) volume(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(e.dir, name)
	if err := errors.Join(os.MkdirAll(path, 0o755), os.Chown(path, e.first, e.first)); err != nil {
		t.Fatal(err)
	}
	return path
}

// command returns a command that runs a container of a pod, as a kubelet would: with the image's environment and with
// the rights of the pod's manifest. volumes are folders by the name of the volume.
func (e *engine) command(ctx context.Context, id string, c corev1.Container, volumes map[string]string) (*exec.Cmd, error) {
	bundle := filepath.Join(e.dir, id)
	if err := os.Mkdir(bundle, 0o755); err != nil {
		return nil, err
	}
	text, err := json.MarshalIndent(e.spec(id, c, volumes), "", " ")
	if err != nil {
		return nil, err
	}
	if err := errors.Join(os.WriteFile(filepath.Join(bundle, "config.json"), text, 0o644), os.Chown(bundle, e.first, e.first)); err != nil {
		return nil, err
	}
	words := e.words("run", "--bundle", bundle, id)
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Cancel = func() error { return e.kill(id) }
	cmd.Stdin = strings.NewReader("") // a pipe: crun gives the files of a container's streams to its user, and that would be /dev/null
	return cmd, nil
}

// cgroups are words before a command that hide cgroups of version 1 from it, where the machine mounts both versions: crun
// refuses such a mix, and the containers use no cgroup.
func cgroups() []string {
	const both = "/sys/fs/cgroup/unified"
	if _, err := os.Stat(both); err != nil {
		return nil
	}
	return []string{"unshare", "--mount", "sh", "-c", "mount --bind " + both + ` /sys/fs/cgroup && exec "$@"`, "sh"}
}

// words is a command line of the runtime.
func (e *engine) words(args ...string) []string {
	state := filepath.Join(e.dir, "state")
	all := append(append(cgroups(), e.container...), e.runtime, "--root", state)
	if strings.HasSuffix(e.runtime, "/crun") {
		all = append(all, "--cgroup-manager=disabled")
	}
	return append(all, args...)
}

// kill kills a container, as a node does that fails.
func (e *engine) kill(id string) error {
	words := e.words("kill", id, "KILL")
	if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%q: %w\n%s", words, err, out)
	}
	return nil
}

type object = map[string]any

// spec is the container's configuration in the words of the OCI runtime specification.
func (e *engine) spec(id string, c corev1.Container, volumes map[string]string) object {
	env := append([]string{}, e.image.Config.Env...)
	for _, v := range c.Env {
		env = append(env, v.Name+"="+v.Value)
	}
	args := c.Command
	if len(args) == 0 {
		args = e.image.Config.Entrypoint
	}
	var capabilities []string
	for _, name := range c.SecurityContext.Capabilities.Add {
		capabilities = append(capabilities, "CAP_"+string(name))
	}
	escalation := c.SecurityContext.AllowPrivilegeEscalation
	mounts := []object{
		{"destination": "/proc", "type": "proc", "source": "proc"},
		{"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": []string{"nosuid", "strictatime", "mode=755", "size=64k"}},
		{"destination": "/dev/pts", "type": "devpts", "source": "devpts", "options": []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"}},
		{"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": []string{"nosuid", "nodev", "mode=1777"}},
		{"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": []string{"nosuid", "noexec", "nodev", "ro"}},
	}
	for _, m := range c.VolumeMounts {
		mounts = append(mounts, object{"destination": m.MountPath, "type": "bind", "source": volumes[m.Name], "options": []string{"rbind", "rw"}})
	}
	ids := []object{{"containerID": 0, "hostID": e.first, "size": e.users}}
	var namespaces []object
	for _, kind := range []string{"user", "pid", "network", "ipc", "uts", "mount"} {
		namespaces = append(namespaces, object{"type": kind})
	}
	return object{
		"ociVersion": "1.0.2", "hostname": id,
		"root": object{"path": e.rootfs, "readonly": *c.SecurityContext.ReadOnlyRootFilesystem},
		"process": object{
			"user": object{"uid": 0, "gid": 0}, "cwd": "/", "env": env, "args": append(append([]string{}, args...), c.Args...),
			"capabilities":    object{"bounding": capabilities, "effective": capabilities, "permitted": capabilities},
			"noNewPrivileges": escalation != nil && !*escalation,
		},
		"mounts": mounts,
		"linux": object{
			"namespaces": namespaces, "uidMappings": ids, "gidMappings": ids,
			// What containerd hides of /proc by default.
			"maskedPaths":   []string{"/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list", "/proc/sched_debug", "/proc/scsi", "/sys/firmware"},
			"readonlyPaths": []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"},
		},
	}
}
