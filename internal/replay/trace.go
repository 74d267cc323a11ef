// Package replay runs a history of pods against a model of a cluster: it reads and
// writes traces, drives the published placement protocols over internal/placement's
// nodes and scorers, and sums up what was placed and what was stranded. It knows no
// live cluster and draws every random number from a seed.
package replay

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/share"
)

// Trace is a cluster and the pods that came to it.
type Trace struct {
	Name  string
	Nodes []Node
	Pods  []Pod
}

// Node is a line of a trace's list of nodes.
type Node struct {
	Name          string
	Model         string // of its cards
	CPU           int64  // allocatable, in thousandths of a core
	HostMemoryMiB int64  // allocatable
	Cards         int
	CardMemoryMiB int64 // of one card, what tenants can have; 0: not recorded
}

// Pod is a line of a trace's list of pods. A pod whose containers have different
// shares has a line for each.
type Pod struct {
	Name          string
	CPU           int64 // requested, in thousandths of a core
	HostMemoryMiB int64
	Cards         int      // 0: none
	CoreMilli     int64    // of each card, in thousandths; 1000: the whole card
	CardMemoryMiB int64    // of each card; 0: not recorded, or all of a whole card
	Models        []string // the card models that will do; none: any
	QoS, Phase    string
	// Seconds since the trace's beginning; 0 where not recorded.
	Created, Deleted, Scheduled int64
}

// GPUMilli is what p takes of all of its cards, in thousandths of a card.
func (p Pod) GPUMilli() int64 { return int64(p.Cards) * p.CoreMilli }

// Request is p as placement sees it.
func (p Pod) Request() placement.Request {
	r := placement.Request{CPU: p.CPU, Models: p.Models}
	if p.Cards == 0 {
		return r
	}
	s := share.Share{
		Core:   p.Cards * int(p.CoreMilli/milliPerPercent),
		Memory: share.Memory(int64(p.Cards)*p.CardMemoryMiB) * share.MiB,
	}
	if p.CoreMilli == wholeMilli {
		s.Memory = 0
	}
	r.Containers = []placement.Container{{Name: "main", Share: s}}
	return r
}

const (
	milliPerPercent = 10
	wholeMilli      = 1000
)

var (
	nodeColumns = []string{"sn", "cpu_milli", "memory_mib", "gpu", "model", "gpu_memory_mib"}
	podColumns  = []string{
		"name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "qos", "pod_phase",
		"creation_time", "deletion_time", "scheduled_time", "gpu_memory_mib",
	}
)

// Names of the files that Write makes and Open prefers.
const (
	NodesFile = "nodes.csv"
	PodsFile  = "pods.csv"
)

// Open reads a trace from a folder: nodes.csv and pods.csv, or, in the layout of the
// published openb trace, NODES_node_list_gpu_node.csv with PODS_pod_list_NAME.csv.
// An empty name is the folder's only, or "default" list of pods.
func Open(dir, name string) (*Trace, error) {
	nodesPath, podsPath := filepath.Join(dir, NodesFile), filepath.Join(dir, PodsFile)
	if _, err := os.Stat(nodesPath); errors.Is(err, os.ErrNotExist) {
		if name == "" {
			name = "default"
		}
		nodesPath = only(dir, "*_node_list_gpu_node.csv")
		podsPath = only(dir, "*_pod_list_"+name+".csv")
	}
	if nodesPath == "" || podsPath == "" {
		return nil, fmt.Errorf("%s has no trace %q: it holds neither %s and %s nor lists in the openb layout", dir, name, NodesFile, PodsFile)
	}
	t := &Trace{Name: name}
	for _, f := range []struct {
		path string
		read func(io.Reader) error
	}{
		{nodesPath, func(r io.Reader) (err error) { t.Nodes, err = ReadNodes(r); return }},
		{podsPath, func(r io.Reader) (err error) { t.Pods, err = ReadPods(r); return }},
	} {
		if err := readFile(f.path, f.read); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func only(dir, pattern string) string {
	paths, _ := filepath.Glob(filepath.Join(dir, pattern))
	if len(paths) != 1 {
		return ""
	}
	return paths[0]
}

func readFile(path string, read func(io.Reader) error) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read the trace: %w", err)
	}
	defer f.Close()
	if err := read(f); err != nil {
		return fmt.Errorf("read the trace %s: %w", path, err)
	}
	return nil
}

// ReadNodes reads a list of nodes.
func ReadNodes(r io.Reader) ([]Node, error) {
	var nodes []Node
	err := table(r, nodeColumns[:5], func(f *fields) {
		nodes = append(nodes, Node{
			Name:          f.text("sn"),
			Model:         f.text("model"),
			CPU:           f.number("cpu_milli"),
			HostMemoryMiB: f.number("memory_mib"),
			Cards:         int(f.within("gpu", maxCards)),
			CardMemoryMiB: f.number("gpu_memory_mib"),
		})
	})
	return nodes, err
}

// maxCards is the most cards of a node that a trace may have.
const maxCards = 64

// ReadPods reads a list of pods. Core below a percent of a card is rounded up.
func ReadPods(r io.Reader) ([]Pod, error) {
	var pods []Pod
	err := table(r, podColumns[:5], func(f *fields) {
		p := Pod{
			Name:          f.text("name"),
			CPU:           f.number("cpu_milli"),
			HostMemoryMiB: f.number("memory_mib"),
			Cards:         int(f.within("num_gpu", maxCards)),
			CoreMilli:     f.within("gpu_milli", wholeMilli),
			CardMemoryMiB: f.number("gpu_memory_mib"),
			QoS:           f.text("qos"),
			Phase:         f.text("pod_phase"),
			Created:       f.number("creation_time"),
			Deleted:       f.number("deletion_time"),
			Scheduled:     f.number("scheduled_time"),
		}
		p.CoreMilli = (p.CoreMilli + milliPerPercent - 1) / milliPerPercent * milliPerPercent
		for m := range strings.SplitSeq(f.text("gpu_spec"), "|") {
			if m != "" {
				p.Models = append(p.Models, m)
			}
		}
		slices.Sort(p.Models)
		pods = append(pods, p)
	})
	return pods, err
}

// fields is one line of a table, by column. The first bad value is kept as the error.
type fields struct {
	index  map[string]int
	record []string
	err    error
}

func (f *fields) text(column string) string {
	if i, ok := f.index[column]; ok && i < len(f.record) {
		return f.record[i]
	}
	return ""
}

func (f *fields) number(column string) int64 { return f.within(column, 1<<50) }

func (f *fields) within(column string, most int64) int64 {
	text := f.text(column)
	if text == "" {
		return 0
	}
	v, err := strconv.ParseFloat(text, 64)
	if (err != nil || !(v >= 0 && v <= float64(most))) && f.err == nil {
		f.err = fmt.Errorf("column %s: %q is not a number of 0…%d", column, text, most)
		return 0
	}
	return int64(v)
}

func table(r io.Reader, need []string, line func(*fields)) error {
	in := csv.NewReader(r)
	in.ReuseRecord = true
	header, err := in.Read()
	if err != nil {
		return fmt.Errorf("the header: %w", err)
	}
	f := fields{index: map[string]int{}}
	for i, column := range header {
		f.index[column] = i
	}
	for _, column := range need {
		if _, ok := f.index[column]; !ok {
			return fmt.Errorf("column %s is missing", column)
		}
	}
	for {
		f.record, err = in.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if line(&f); f.err != nil {
			n, _ := in.FieldPos(0)
			return fmt.Errorf("line %d: %w", n, f.err)
		}
	}
}
