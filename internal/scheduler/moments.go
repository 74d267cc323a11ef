package scheduler

// moments finds records by the generation of their nodes, which is a number that no two
// nodes and no two moments share. Filter and Score ask it for each node and pod; a map
// by name would take most of their time.
//
// It is a hash table with linear probing. Past generations stay in it until it is made
// anew, and are never asked for.
type moments struct {
	slots []moment // a power of two
	used  int
}

type moment struct {
	generation int64 // 0: the slot is free
	id         int
}

func (m *moments) put(r *record, records []*record) {
	if 2*(m.used+1) > len(m.slots) {
		m.rebuild(records)
	}
	m.insert(r.generation, r.id)
}

func (m *moments) insert(generation int64, id int) {
	if generation == 0 {
		return
	}
	i := m.slot(generation)
	if m.slots[i].generation == 0 {
		m.used++
	}
	m.slots[i] = moment{generation, id}
}

func (m *moments) rebuild(records []*record) {
	size := 64
	for size < 6*len(records) {
		size *= 2
	}
	m.slots, m.used = make([]moment, size), 0
	for _, r := range records {
		if r != nil {
			m.insert(r.generation, r.id)
		}
	}
}

func (m *moments) get(generation int64) (id int, ok bool) {
	if len(m.slots) == 0 || generation == 0 {
		return 0, false
	}
	found := m.slots[m.slot(generation)]
	return found.id, found.generation == generation
}

// slot is where generation is, or is to go.
func (m *moments) slot(generation int64) int {
	mask := len(m.slots) - 1
	i := int(mix(uint64(generation))) & mask
	for m.slots[i].generation != 0 && m.slots[i].generation != generation {
		i = (i + 1) & mask
	}
	return i
}
