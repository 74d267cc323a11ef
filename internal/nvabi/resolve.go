package nvabi

import "fmt"

// For returns the ABI of a driver version, from the table of its branch.
func For(v Version) (*ABI, error) {
	return nil, fmt.Errorf("driver version %s: no ABI table", v)
}
