package mediator

import "fmt"

// QuotaError says that less of a card's memory was asked for than the tenant holds.
type QuotaError struct {
	Minor       int
	Asked, Used uint64 // bytes
}

func (e *QuotaError) Error() string {
	const mib = 1 << 20
	return fmt.Sprintf("%d MiB of card %d are asked for, and %d MiB are in use; the program must free some first",
		e.Asked/mib, e.Minor, (e.Used+mib-1)/mib)
}

// SetQuotas changes how much memory the tenant may hold on each of its cards, in Config's
// order and in bytes: all of them, or none and the error is a [QuotaError].
func (m *Mediator) SetQuotas(quotas []uint64) error {
	if len(quotas) != len(m.cards) {
		return fmt.Errorf("there are %d quotas for %d cards", len(quotas), len(m.cards))
	}
	full := m.ledger.setQuotas(quotas)
	if full == nil {
		return nil
	}
	m.reconcile(none) // memory may be back without a call having shown it
	if full = m.ledger.setQuotas(quotas); full == nil {
		return nil
	}
	full.Minor = m.cards[full.Minor].Minor
	return full
}

// setQuotas returns, with a card's index in place of its minor number, why it cannot.
func (l *ledger) setQuotas(quotas []uint64) *QuotaError {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, q := range quotas {
		if used := l.cards[i].used(); q < used {
			return &QuotaError{Minor: i, Asked: q, Used: used}
		}
	}
	for i, q := range quotas {
		l.cards[i].quota = q
	}
	return nil
}
