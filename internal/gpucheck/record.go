package gpucheck

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// recordFile is the last report in a state folder.
const recordFile = "gpu-check.json"

// Record keeps the report in a state folder, for who asks later what the card can do.
func (r *Report) Record(stateDir string) error {
	if err := os.MkdirAll(stateDir, 0o755); err != nil {
		return fmt.Errorf("record the check: %w", err)
	}
	return r.WriteFile(filepath.Join(stateDir, recordFile))
}

// Recorded is the report that was recorded last in a state folder. It is nil if there is none.
func Recorded(stateDir string) (*Report, error) {
	text, err := os.ReadFile(filepath.Join(stateDir, recordFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the last check: %w", err)
	}
	r := &Report{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("the record of the last check is damaged; check again: %w", err)
	}
	return r, nil
}
