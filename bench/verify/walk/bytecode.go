package walk

import (
	"fmt"

	"golang.org/x/net/bpf"
)

// compileProgram compiles a program of -m bpf. It runs on the packet from the IP header on, and may load only the parts
// of that header that a packet has here.
func compileProgram(raw []bpf.RawInstruction, ipv4 bool) (*bpf.VM, error) {
	program := make([]bpf.Instruction, len(raw))
	for i := range raw {
		program[i] = raw[i].Disassemble()
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
