package placementcmd

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/qgpu-project/qgpu/internal/replay"
)

// store keeps finished runs in a file, one JSON object a line, so that a long report
// that was broken off goes on where it was. A run depends on nothing but its key and
// the program: the file is for one build.
type store struct {
	path string
	runs map[string]*replay.Run
}

type kept struct {
	Key string
	Run *replay.Run
}

func keyOf(j replay.Job) string {
	return fmt.Sprintf("%s %s %#v %d", j.Trace.Name, j.Policy, j.Protocol, j.Seed)
}

// openStore reads what is kept in path; an empty path keeps nothing.
func openStore(path string) (*store, error) {
	s := &store{path: path, runs: map[string]*replay.Run{}}
	if path == "" {
		return s, nil
	}
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var k kept
		if json.Unmarshal(lines.Bytes(), &k) == nil && k.Run != nil { // the last line may be cut off
			s.runs[k.Key] = k.Run
		}
	}
	return s, lines.Err()
}

// run makes the runs that are not kept yet, and keeps them.
func (s *store) run(c *cobra.Command, jobs []replay.Job) ([]*replay.Run, error) {
	var missing []replay.Job
	for _, j := range jobs {
		if s.runs[keyOf(j)] == nil {
			missing = append(missing, j)
		}
	}
	var out *os.File
	if s.path != "" {
		var err error
		if out, err = os.OpenFile(s.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644); err != nil {
			return nil, err
		}
		defer out.Close()
	}
	_, err := runAll(c, missing, func(j replay.Job, r *replay.Run) {
		s.runs[keyOf(j)] = r
		if line, err := json.Marshal(kept{keyOf(j), r}); err == nil && out != nil {
			_, _ = out.Write(append(line, '\n')) // a run that is not kept is made again
		}
	})
	if err != nil {
		return nil, err
	}
	runs := make([]*replay.Run, len(jobs))
	for i, j := range jobs {
		runs[i] = s.runs[keyOf(j)]
	}
	return runs, nil
}
