package netns

import (
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// bpfFS is where programs expect the file system of pinned BPF objects.
const bpfFS = "/sys/fs/bpf"

// ownBPF is set once bpfFS is of this mount namespace. Before, it may be the machine's.
var ownBPF atomic.Bool

// MountBPF mounts an empty file system for pinned BPF objects, in this mount namespace only: it ends with the namespace, and
// its pins with it. Subjects that start later may write to it.
func MountBPF() error {
	if err := Guard(); err != nil {
		return err
	}
	if ownBPF.Load() {
		return nil
	}
	if err := unix.Mount("bpf", bpfFS, "bpf", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount a BPF file system at %s: %w", bpfFS, err)
	}
	ownBPF.Store(true)
	return nil
}
