package profile

import (
	"debug/elf"
	"debug/gosym"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"synclab/bench/outfile"
)

// symbols names functions in files without a symbol table.
type symbols map[string]*object

// object is what is known of a file. Addresses are virtual ones of the file.
type object struct {
	segments []elf.ProgHeader
	golang   *gosym.Table // of a Go program
	starts   []uint64     // of functions, sorted; without golang
}

// name returns the name of a function by an offset in the file. A stripped C program has only the start of the function.
func (s symbols) name(path string, offset uint64) string {
	o, known := s[path]
	if !known {
		o, _ = openObject(path) // without one there are no names
		s[path] = o
	}
	base := filepath.Base(path)
	if o == nil {
		return base
	}
	for _, segment := range o.segments {
		if offset < segment.Off || offset >= segment.Off+segment.Filesz {
			continue
		}
		at := offset - segment.Off + segment.Vaddr
		if o.golang != nil {
			if f := o.golang.PCToFunc(at); f != nil {
				return f.Name
			}
			return base
		}
		i, found := slices.BinarySearch(o.starts, at)
		if !found {
			i--
		}
		if i >= 0 {
			return fmt.Sprintf("%s+0x%x", base, o.starts[i])
		}
	}
	return base
}

// openObject reads a file that a sample was in. A subject can have made it: a FIFO, or a section of any size.
func openObject(path string) (*object, error) {
	opened, err := outfile.OpenBeside(path, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	file, err := elf.NewFile(opened)
	if err != nil {
		return nil, err
	}
	o := &object{}
	for _, p := range file.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 {
			o.segments = append(o.segments, p.ProgHeader)
		}
	}
	if lines, text := file.Section(".gopclntab"), file.Section(".text"); lines != nil && text != nil {
		table, err := contentOf(lines)
		if err != nil {
			return nil, err
		}
		o.golang, err = gosym.NewTable(nil, gosym.NewLineTable(table, text.Addr))
		return o, err
	}
	index := file.Section(".eh_frame_hdr")
	if index == nil {
		return o, nil
	}
	content, err := contentOf(index)
	if err != nil {
		return nil, err
	}
	o.starts = functionStarts(content, index.Addr, file.ByteOrder)
	return o, nil
}

// contentOf returns what is in a section of up to 128 MiB: kube-proxy's largest has some 20.
func contentOf(s *elf.Section) ([]byte, error) {
	const most = 128 << 20
	if s.Size > most || s.FileSize > most {
		return nil, fmt.Errorf("section %s: larger than %d MiB", s.Name, most>>20)
	}
	return s.Data()
}

// functionStarts reads the starts of functions from the index of the unwind tables (.eh_frame_hdr), in the only encoding
// that compilers write: 4 bytes each, relative to the section. See the Linux Standard Base, "Exception Frames".
func functionStarts(index []byte, base uint64, order binary.ByteOrder) []uint64 {
	const head, entry = 12, 8
	const relative4, unsigned4 = 0x3b, 0x03
	if len(index) < head || index[0] != 1 || index[2] != unsigned4 || index[3] != relative4 {
		return nil
	}
	var starts []uint64
	for n := order.Uint32(index[8:]); n > 0 && len(index) >= head+entry; n-- {
		starts = append(starts, base+uint64(int64(int32(order.Uint32(index[head:])))))
		index = index[entry:]
	}
	slices.Sort(starts)
	return starts
}
