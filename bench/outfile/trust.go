package outfile

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Trusted returns an error if another user can change what is at a path: the file or folder, or a folder above it, belongs
// to a user besides this one and root, or others may write to it. A sticky folder such as /tmp is safe for what is in it,
// as users cannot rename files of others there.
func Trusted(path string) error {
	path, err := filepath.Abs(path)
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		return err
	}
	for at := path; ; at = filepath.Dir(at) {
		stat, err := os.Lstat(at)
		if err != nil {
			return err
		}
		own := stat.Sys().(*syscall.Stat_t)
		mode := stat.Mode()
		switch {
		case own.Uid != 0 && int(own.Uid) != os.Geteuid() && !unmapped(own.Uid):
			return fmt.Errorf("%s is not used: %s belongs to user %d, who may change it", path, at, own.Uid)
		case mode&0o002 != 0 && mode&fs.ModeSticky == 0, mode&0o020 != 0 && mode&fs.ModeSticky == 0 && !ownGroup(own.Gid):
			return fmt.Errorf("%s is not used: other users may write to %s (chmod go-w)", path, at)
		}
		if at == filepath.Dir(at) {
			return nil
		}
	}
}

// ownGroup reports whether a group is the main one of an ordinary user, where many systems have groups of one user. Root
// trusts only the group root.
func ownGroup(gid uint32) bool {
	if os.Geteuid() == 0 {
		return gid == 0
	}
	return gid == 0 || int(gid) == os.Getegid()
}

// unmapped reports whether a user ID stands for all that this user namespace does not have, root of the machine among
// them. A process in such a namespace is not root outside of it.
func unmapped(uid uint32) bool {
	const overflow = 65534
	text, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && uid == overflow && !strings.Contains(string(text), "4294967295")
}
