package placement

import "encoding/binary"

// AppendState appends to b what of n a Placer and scorers can see, but for its names
// and, unless cpu is set, its CPU: nodes with the same state have the same places,
// ratings and explanations.
func (n *Node) AppendState(b []byte, cpu bool) []byte {
	b = appendInts(b, int64(len(n.Cards)))
	if cpu {
		b = appendInts(b, n.CPU, n.FreeCPU)
	}
	for i := range n.Cards {
		c := &n.Cards[i]
		flags := int64(0)
		if c.Whole {
			flags |= 1
		}
		b = appendInts(b, int64(c.Memory), int64(c.Taken), int64(c.Core), int64(c.Tenants), int64(c.Online), int64(c.Offline), flags)
		b = append(append(b, c.Model...), 0)
		b = append(append(b, c.Unhealthy...), 0)
	}
	return b
}

func appendInts(b []byte, values ...int64) []byte {
	for _, v := range values {
		b = binary.AppendVarint(b, v)
	}
	return b
}
