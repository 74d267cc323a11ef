package replay

import (
	"encoding/csv"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Published is the published table: percent of cards allocated at each percent of
// arrived load.
type Published map[PublishedRun][]float64

// PublishedRun names a run of the published table.
type PublishedRun struct {
	Trace, Policy string
	Seed          int64
}

// publishedPolicies are the table's names for policies.
var publishedPolicies = map[string]string{
	"01-Random": "random", "02-DotProd": "dot-product", "03-GpuClustering": "clustering",
	"04-GpuPacking": "packing", "05-BestFit": "best-fit", "06-FGD": "fgd",
}

// PublishedTraces are the lists of pods in the published table.
func PublishedTraces() []string {
	return []string{
		"default", "cpu050", "cpu100", "cpu200", "cpu250",
		"gpushare40", "gpushare60", "gpushare80", "gpushare100",
		"gpuspec10", "gpuspec20", "gpuspec25", "gpuspec33",
		"multigpu20", "multigpu30", "multigpu40", "multigpu50",
	}
}

// PublishedPolicies are the policies of the published table.
func PublishedPolicies() []string {
	return slices.Sorted(maps.Values(publishedPolicies))
}

// ReadPublished reads analysis_allo_discrete.csv of the openb trace's repository.
func ReadPublished(path string) (Published, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the published table: %w", err)
	}
	defer f.Close()
	p, err := parsePublished(f)
	if err != nil {
		return nil, fmt.Errorf("read the published table %s: %w", path, err)
	}
	return p, nil
}

func parsePublished(r io.Reader) (Published, error) {
	const (
		key   = 5 // workload, policy, tune, seed, total
		curve = 131
	)
	rows, err := csv.NewReader(r).ReadAll()
	if err != nil {
		return nil, err
	}
	p := Published{}
	for i, row := range rows {
		if i == 0 {
			continue
		}
		if len(row) != key+curve {
			return nil, fmt.Errorf("line %d has %d columns, and a run has %d", i+1, len(row), key+curve)
		}
		seed, err := strconv.ParseInt(row[3], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("line %d: the seed: %w", i+1, err)
		}
		run := PublishedRun{strings.TrimPrefix(row[0], "openb_pod_list_"), publishedPolicies[row[1]], seed}
		for _, text := range row[key:] {
			v, err := strconv.ParseFloat(text, 64)
			if err != nil {
				v = math.NaN()
			}
			p[run] = append(p[run], v)
		}
	}
	return p, nil
}

// ReadBounds reads upper_bound_lp.txt, which lies beside the table: for each list of
// pods the most that any placement could allocate at 100 percent of arrived load.
func ReadBounds(path string) (map[string]float64, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the bounds: %w", err)
	}
	bounds := map[string]float64{}
	for text := range strings.Lines(string(b)) {
		f := strings.Fields(text) // NAME LOAD UB VALUE …
		if len(f) < 4 || f[1] != "1.0" {
			continue
		}
		if bounds[f[0]], err = strconv.ParseFloat(f[3], 64); err != nil {
			return nil, fmt.Errorf("read the bounds %s: %w", path, err)
		}
	}
	return bounds, nil
}
