package direct

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"synclab/proxier/kernel/xtables"
)

// mostInstructions is XT_BPF_MAX_NUM_INSTR, and instructionSize that of struct sock_filter.
const (
	mostInstructions = 64
	instructionSize  = 8
)

// bytecode: struct xt_bpf_info_v1: u16 mode (0: bytecode), u16 number of instructions, s32 file, then the instructions.
// struct xt_bpf_info, revision 0, has the number first, and then the instructions.
func (r *rule) bytecode() error {
	at, value, err := r.valueOf(bpf, "--bytecode", false)
	if err != nil {
		return err
	}
	r.wanting[bpf] = false
	length, rest, _ := bytes.Cut(value, []byte{','})
	n, err := number(length, 16)
	if err != nil || n == 0 || n > mostInstructions {
		return fmt.Errorf("--bytecode: %q: want a program of 1 to %d instructions", length, mostInstructions)
	}
	count, program := at, at+4
	if r.revisions.bpf > 0 {
		count, program = at+2, at+8
	}
	r.block.put16(count, uint16(n))
	for i := range int(n) {
		var line []byte
		line, rest, _ = bytes.Cut(rest, []byte{','})
		if err := r.instruction(program+i*instructionSize, line); err != nil {
			return fmt.Errorf("--bytecode: instruction %d of %d: %w", i, n, err)
		}
	}
	if len(rest) > 0 {
		return fmt.Errorf("--bytecode: %q behind instruction %d", rest, n-1)
	}
	return nil
}

// instruction reads "code jt jf k" into struct sock_filter: u16 code, u8 jt, u8 jf, u32 k.
func (r *rule) instruction(at int, line []byte) error {
	line = bytes.TrimLeft(line, " ")
	for i, bits := range [4]int{16, 8, 8, 32} {
		word, rest, more := bytes.Cut(line, []byte{' '})
		v, err := number(word, bits)
		if err != nil {
			return err
		}
		if more != (i < 3) {
			return fmt.Errorf("%q: want four numbers", line)
		}
		switch line = rest; i {
		case 0:
			r.block.put16(at, uint16(v))
		case 1, 2:
			r.block.put8(at+1+i, byte(v))
		case 3:
			r.block.put32(at+4, uint32(v))
		}
	}
	return nil
}

// bytecodeOptions writes a program as iptables-save does; programs in files are not known here.
func bytecodeOptions(b []byte, _ *xtables.Wire, revision byte) []string {
	n, program := u16(b), b[4:]
	if revision > 0 {
		if mode := u16(b); mode != 0 {
			return nil
		}
		n, program = u16(b[2:]), b[8:]
	}
	out := []string{strconv.Itoa(int(n))}
	for i := range min(int(n), mostInstructions) {
		line := program[i*instructionSize:]
		out = append(out, fmt.Sprintf("%d %d %d %d", u16(line), line[2], line[3], u32(line[4:])))
	}
	return []string{"--bytecode", `"` + strings.Join(out, ",") + `"`}
}
