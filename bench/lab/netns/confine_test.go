package netns_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"synclab/bench/lab/netns"
)

// machines are files through which real root can change the machine; own belongs to the namespace.
var (
	machines = []string{"/proc/sys/vm/swappiness", "/proc/sys/kernel/panic", "/proc/sysrq-trigger", "/proc/driver", "/proc/mtrr", "/proc/scsi", "/sys/kernel", "/sys/fs/cgroup", "/sys/fs/bpf"}
	own      = "/proc/sys/net/ipv4/ip_forward"
)

const inherited = 200 // a descriptor

// reach prints what this process could do to the machine. It changes nothing: it only tests permissions.
func reach() {
	for _, path := range append([]string{own}, machines...) {
		if unix.Access(path, unix.W_OK) == nil {
			fmt.Println("writes", path)
		}
	}
	// Requests a mount without a valid file system.
	if err := unix.Mount("none", "/", "no-such-filesystem", 0, ""); err != unix.EPERM {
		fmt.Println("mounts", err)
	}
	lock := os.Getenv("XTABLES_LOCKFILE")
	if unix.Access(filepath.Dir(lock), unix.W_OK) != nil {
		fmt.Println("cannot write to the run's folder")
	}
	_ = os.Chmod(filepath.Dir(filepath.Dir(lock)), 0o711)
	if os.Rename(lock, lock+".old") == nil {
		fmt.Println("replaces the lock", os.Rename(lock+".old", lock))
	}
	if unix.Fstat(inherited, &unix.Stat_t{}) == nil {
		fmt.Println("has a descriptor of the caller")
	}
	if _, err := os.Stat("/dev/tty"); err == nil {
		fmt.Println("sees a terminal")
	}
	if loadsBPF() {
		fmt.Println("loads BPF")
	}
	for capability := uintptr(0); capability <= unix.CAP_LAST_CAP; capability++ {
		if held, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, capability, 0, 0, 0); err == nil && held == 1 {
			fmt.Println("holds", capability)
		}
	}
}

// loadsBPF reports whether this process can load a program that could be attached to a cgroup. It attaches nothing.
func loadsBPF() bool {
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.CGroupSKB, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 1), asm.Return()}})
	if err != nil {
		return false
	}
	program.Close()
	return true
}

func TestConfine(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	// What a process puts into the terminal of its session, the user's shell would run.
	if session, err := unix.Getsid(0); err != nil || session == 0 {
		t.Errorf("the worker is in the session of its parent (%d, %v)", session, err)
	}
	started := func(confine func() error) string {
		t.Helper()
		var out []byte
		var err error
		done := make(chan struct{})
		go func() {
			defer close(done)
			runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
			if err = confine(); err != nil {
				return
			}
			cmd := exec.Command("/proc/self/exe")
			cmd.Env = append(os.Environ(), envRole+"=confined")
			out, err = cmd.CombinedOutput()
		}()
		<-done
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	confine := func() error {
		open, err := netns.Confine(netns.Kept{Read: []string{os.Args[0]}, Write: []string{filepath.Dir(os.Getenv("XTABLES_LOCKFILE"))}})
		if open != nil {
			t.Log("files are not protected:", open)
		}
		return err
	}
	folder, err := os.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	if fd, err := unix.FcntlInt(folder.Fd(), unix.F_DUPFD, inherited); err != nil || fd != inherited { // as the shell's 200</ does
		t.Fatal(fd, err)
	}
	defer unix.Close(inherited)
	// Others must not get into the folder: what a subject makes set-user-ID there would be a way to this user.
	above := filepath.Dir(filepath.Dir(os.Getenv("XTABLES_LOCKFILE")))
	free := started(func() error { return nil })
	if stat, err := os.Stat(above); err != nil || stat.Mode().Perm() != 0o711 || filepath.Dir(above) != filepath.Clean(os.TempDir()) {
		t.Errorf("%s: %v, %v; want the folder of the run's, opened by the free process", above, stat, err)
	}
	if err := os.Chmod(above, 0o700); err != nil {
		t.Fatal(err)
	}
	confined := started(confine)
	if stat, err := os.Stat(above); err != nil || stat.Mode().Perm() != 0o700 {
		t.Errorf("a confined process opens the folder above the run's: %v, %v", stat, err)
	}
	for _, path := range machines {
		line := "writes " + path + "\n"
		if !netns.InUserNamespace() && !strings.Contains(free, line) && strings.HasPrefix(path, "/proc/sys/") {
			t.Errorf("%s: root cannot write it, so it proves nothing", path)
		}
		if strings.Contains(confined, line) {
			t.Errorf("a confined process can write %s", path)
		}
	}
	if !strings.Contains(confined, "writes "+own+"\n") {
		t.Errorf("a confined process cannot write %s, which belongs to its namespace", own)
	}
	for _, capability := range []int{unix.CAP_SYS_ADMIN, unix.CAP_SYS_MODULE, unix.CAP_SYS_PTRACE, unix.CAP_MKNOD, unix.CAP_SYS_RAWIO, unix.CAP_SYS_NICE} {
		line := fmt.Sprintf("holds %d\n", capability)
		if !strings.Contains(free, line) || strings.Contains(confined, line) {
			t.Errorf("capability %d: free %t, confined %t", capability, strings.Contains(free, line), strings.Contains(confined, line))
		}
	}
	for _, capability := range []int{unix.CAP_NET_ADMIN, unix.CAP_NET_RAW} {
		if !strings.Contains(confined, fmt.Sprintf("holds %d\n", capability)) {
			t.Errorf("a confined process lacks capability %d", capability)
		}
	}
	if strings.Contains(confined, "mounts") {
		t.Error("a confined process can mount")
	}
	for _, unwanted := range []string{"cannot write to the run's folder", "replaces the lock", "sees a terminal", "has a descriptor of the caller"} {
		if strings.Contains(confined, unwanted) {
			t.Errorf("a confined process %s", unwanted)
		}
	}
	// A kernel that lets all users load programs cannot be kept from it.
	if all, _ := os.ReadFile("/proc/sys/kernel/unprivileged_bpf_disabled"); strings.Contains(confined, "loads BPF") && strings.TrimSpace(string(all)) != "0" {
		t.Error("a confined process can load BPF programs, and so attach them to the machine's cgroups")
	}
	// In a container, root may lack CAP_SETPCAP. Then the bounding set stays, and no_new_privs has no effect on this
	// test.
	lacking := started(func() error {
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var sets [2]unix.CapUserData
		if err := unix.Capget(&header, &sets[0]); err != nil {
			return err
		}
		sets[0].Effective &^= 1 << unix.CAP_SETPCAP
		sets[0].Permitted &^= 1 << unix.CAP_SETPCAP
		if err := unix.Capset(&header, &sets[0]); err != nil {
			return err
		}
		return confine()
	})
	if strings.Contains(lacking, "mounts") || strings.Contains(lacking, "writes "+machines[0]) || !strings.Contains(lacking, "writes "+own) {
		t.Errorf("confined without CAP_SETPCAP: %q", lacking)
	}
	testChroot(t)
	// The confined thread has ended with its goroutine: the rest of this process is not confined.
	if again := started(func() error { return nil }); again != strings.Replace(free, "has a descriptor of the caller\n", "", 1) {
		t.Errorf("other threads are confined afterwards: %q", again)
	}
	if err := netns.MountBPF(); err != nil {
		t.Logf("not tested with a BPF file system of the namespace: %v", err)
		return
	}
	if confined = started(confine); !strings.Contains(confined, "writes /sys/fs/bpf\n") || strings.Contains(free, "loads BPF") != strings.Contains(confined, "loads BPF") || strings.Contains(confined, "writes /sys/kernel\n") {
		t.Errorf("with a BPF file system of the namespace, a confined process reaches %q", confined)
	}
}

// testChroot checks that a process whose root folder is not a mount loses its capabilities.
func testChroot(t *testing.T) {
	t.Helper()
	root := t.TempDir()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		proc := filepath.Join(root, "proc")
		err := errors.Join(os.Mkdir(proc, 0o700), unix.Unshare(unix.CLONE_FS|unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
			unix.Mount("/proc", proc, "", unix.MS_BIND|unix.MS_REC, ""), unix.Chroot(root))
		if err == nil {
			var open error
			if open, err = netns.Confine(netns.Kept{}); open == nil {
				err = errors.Join(err, errors.New("it does not say that files are not protected"))
			}
		}
		if held, e := unix.PrctlRetInt(unix.PR_CAPBSET_READ, unix.CAP_SYS_ADMIN, 0, 0, 0); e != nil || held == 1 {
			err = errors.Join(err, e, fmt.Errorf("it holds CAP_SYS_ADMIN: %d", held))
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Errorf("in a chroot: %v", err)
	}
}
