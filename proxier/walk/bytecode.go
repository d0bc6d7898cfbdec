package walk

import (
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/net/bpf"
)

// mostInstructions is how long a program of -m bpf may be (XT_BPF_MAX_NUM_INSTR).
const mostInstructions = 64

// compileBytecode compiles a program of -m bpf: "number of instructions,code jt jf k,…". It runs on the packet from the
// IP header on, and may load only the parts of that header that a packet has here.
func compileBytecode(text string, ipv4 bool) (*bpf.VM, error) {
	count, rest, _ := strings.Cut(text, ",")
	n, err := strconv.ParseUint(strings.TrimSpace(count), 10, 16)
	if err != nil {
		return nil, fmt.Errorf("bytecode: %w", err)
	}
	lines := strings.Split(strings.TrimSuffix(rest, ","), ",")
	if n == 0 || n > mostInstructions || int(n) != len(lines) {
		return nil, fmt.Errorf("bytecode: %d instructions of %d", len(lines), n)
	}
	program := make([]bpf.Instruction, n)
	for i, line := range lines {
		raw, err := parseInstruction(line)
		if err != nil {
			return nil, fmt.Errorf("bytecode: instruction %d: %w", i, err)
		}
		program[i] = raw.Disassemble()
		if err := checkInstruction(program[i], ipv4); err != nil {
			return nil, fmt.Errorf("bytecode: instruction %d: %w", i, err)
		}
	}
	vm, err := bpf.NewVM(program)
	if err != nil {
		return nil, fmt.Errorf("bytecode: %w", err)
	}
	return vm, nil
}

// parseInstruction parses "code jt jf k".
func parseInstruction(text string) (raw bpf.RawInstruction, err error) {
	words := strings.Fields(text)
	if len(words) != 4 {
		return raw, fmt.Errorf("%q is no instruction", text)
	}
	var numbers [4]uint64
	for i, bits := range [4]int{16, 8, 8, 32} {
		if numbers[i], err = strconv.ParseUint(words[i], 10, bits); err != nil {
			return raw, err
		}
	}
	return bpf.RawInstruction{Op: uint16(numbers[0]), Jt: uint8(numbers[1]), Jf: uint8(numbers[2]), K: uint32(numbers[3])}, nil
}

// checkInstruction refuses instructions that the machine does not run, or that load bytes that a packet does not have
// here.
func checkInstruction(instruction bpf.Instruction, ipv4 bool) error {
	switch i := instruction.(type) {
	case bpf.LoadAbsolute:
		if inNetworkHeader(int(i.Off), i.Size, ipv4) {
			return nil
		}
		return fmt.Errorf("%d bytes at %d are %w", i.Size, i.Off, errNotKnown)
	case bpf.LoadConstant, bpf.LoadScratch, bpf.StoreScratch, bpf.ALUOpConstant, bpf.ALUOpX, bpf.Jump, bpf.JumpIf, bpf.JumpIfX,
		bpf.RetA, bpf.RetConstant, bpf.TAX, bpf.TXA:
		return nil
	}
	return fmt.Errorf("%v is %w", instruction, errNotKnown)
}

// accepts runs a program on the packet as it is now.
func (w *Walker) accepts(program *bpf.VM, s *state) bool {
	size := s.putHeader(&w.header, w.rules.ipv4)
	// All faults that the machine can find were checked before.
	accepted, err := program.Run(w.header[:size])
	return err == nil && accepted != 0
}
