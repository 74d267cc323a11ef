package mediator

import (
	"errors"
	"unsafe"

	"github.com/qgpu-project/qgpu/internal/nvabi"
	"gvisor.dev/gvisor/pkg/abi/nvgpu"
)

// maxHeld bounds the UVM files of one process. libcuda opens two.
const maxHeld = 64

// heldUVM is the mediator's own descriptor of the UVM file behind fd, on which a
// process makes a mapping. UVM keeps memory alive as long as its file is open, also
// after the client freed it, and a process that ends may have left the file with
// another one, where no call shows it. So the mediator holds the file, too, and
// frees the mappings itself when the process is gone.
func (m *Mediator) heldUVM(process, fd int) (int, error) {
	l := m.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.space(process)
	for _, h := range s.held {
		if m.driver.Same(h, fd) {
			return h, nil
		}
	}
	if len(s.held) >= maxHeld {
		return none, errors.New("the process maps memory in too many UVM files")
	}
	h, err := m.driver.Dup(fd)
	if err != nil {
		return none, err
	}
	s.held = append(s.held, h)
	return h, nil
}

// releaseSpace frees what a process, which ended or closed its UVM files, has mapped.
func (m *Mediator) releaseSpace(process int) {
	s := m.ledger.takeSpace(process)
	if s == nil {
		return
	}
	for base, length := range s.ranges {
		for at, x := range s.mapped {
			if at >= base && at-base < length {
				m.freeMapped(x.file, base, length)
				break
			}
		}
	}
	m.ledger.dropMappings(s)
	for _, fd := range s.held {
		m.close(fd)
	}
}

// freeMapped frees a range of mappings by UVM_FREE. If the file is open nowhere else, its
// closing frees it as well.
func (m *Mediator) freeMapped(fd int, base, length uint64) {
	arg := make(message, m.abi.UVM[nvgpu.UVM_FREE].Size)
	if len(arg) < 8 {
		return
	}
	arg.setU64(0, base)
	if len(arg) >= 24 {
		arg.setU64(8, length) // until 580
	}
	status := m.abi.UVM[nvgpu.UVM_FREE].Status
	err := m.driver.Ioctl(fd, nvgpu.UVM_FREE, unsafe.Pointer(&arg[0]))
	if err != nil || status != nvabi.None && arg.u32(status) != statusOK {
		m.log.Debug("a mapping of a process that ended could not be freed", "base", base, "error", err)
	}
}

// reopensUVM is called when a process opens a UVM file. If it has closed those before,
// as by exec, the mediator must not be what keeps them open.
func (m *Mediator) reopensUVM(process int) {
	l := m.ledger
	l.mu.Lock()
	s, ok := l.spaces[process]
	holds := ok && len(s.held) > 0
	l.mu.Unlock()
	if holds && !m.processes.HasFile(process, m.files.isUVM) {
		m.releaseSpace(process)
	}
}
