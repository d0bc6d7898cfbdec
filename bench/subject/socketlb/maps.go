package socketlb

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/cilium/ebpf"
)

// Map is an open BPF map. The kernel keeps 15 characters of its name.
type Map struct {
	*ebpf.Map
	Name string
}

// Is reports whether the map has a name and sizes of keys and values, in bytes.
func (m Map) Is(name string, key, value uint32) bool {
	const kept = 15
	return m.Name == name[:min(kept, len(name))] && m.KeySize() == key && m.ValueSize() == value
}

// Maps opens all BPF maps among the open files of a process of this PID namespace. It ignores what has gone meanwhile. The
// caller closes the maps.
func Maps(pid int) (maps []Map, err error) {
	proc := "/proc/" + strconv.Itoa(pid)
	here, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return nil, err
	}
	if space, err := os.Readlink(proc + "/ns/pid"); err != nil || space != here {
		return nil, nil // /proc may be another namespace's, where the number is another process
	}
	files, err := filepath.Glob(proc + "/fd/*")
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		if target, err := os.Readlink(file); err != nil || target != "anon_inode:bpf-map" {
			continue
		}
		id, known := mapID(filepath.Join(proc, "fdinfo", filepath.Base(file)))
		if !known {
			continue
		}
		opened, err := ebpf.NewMapFromID(id)
		if errors.Is(err, os.ErrNotExist) {
			continue
		} else if err != nil {
			closeMaps(maps)
			return nil, fmt.Errorf("BPF map %d: %w", id, err)
		}
		about, err := opened.Info()
		if err != nil {
			_ = opened.Close()
			continue
		}
		maps = append(maps, Map{opened, about.Name})
	}
	return maps, nil
}

func closeMaps(maps []Map) {
	for _, m := range maps {
		_ = m.Close()
	}
}

// mapID reads the ID of a map in the description of an open file.
func mapID(fdinfo string) (ebpf.MapID, bool) {
	text, err := os.ReadFile(fdinfo)
	if err != nil {
		return 0, false
	}
	for line := range bytes.Lines(text) {
		if name, value, _ := bytes.Cut(line, []byte(":")); string(name) == "map_id" {
			id, err := strconv.ParseUint(string(bytes.TrimSpace(value)), 10, 32)
			return ebpf.MapID(id), err == nil
		}
	}
	return 0, false
}
