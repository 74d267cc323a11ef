package replay

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Write makes dir/nodes.csv and dir/pods.csv from t, in the columns of the openb
// trace plus gpu_memory_mib. It makes dir if need be and replaces the files.
func Write(dir string, t *Trace) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write the trace: %w", err)
	}
	for _, f := range []struct {
		name  string
		write func(io.Writer) error
	}{
		{NodesFile, func(w io.Writer) error { return WriteNodes(w, t.Nodes) }},
		{PodsFile, func(w io.Writer) error { return WritePods(w, t.Pods) }},
	} {
		out, err := os.Create(filepath.Join(dir, f.name))
		if err != nil {
			return fmt.Errorf("write the trace: %w", err)
		}
		err = f.write(out)
		if closeErr := out.Close(); err == nil {
			err = closeErr
		}
		if err != nil {
			return fmt.Errorf("write the trace: %w", err)
		}
	}
	return nil
}

// WriteNodes writes a list of nodes.
func WriteNodes(w io.Writer, nodes []Node) error {
	out := csv.NewWriter(w)
	_ = out.Write(nodeColumns) // errors stay with the writer
	for _, n := range nodes {
		_ = out.Write([]string{
			n.Name, decimal(n.CPU), decimal(n.HostMemoryMiB), strconv.Itoa(n.Cards), n.Model, decimal(n.CardMemoryMiB),
		})
	}
	out.Flush()
	return out.Error()
}

// WritePods writes a list of pods.
func WritePods(w io.Writer, pods []Pod) error {
	out := csv.NewWriter(w)
	_ = out.Write(podColumns)
	for _, p := range pods {
		_ = out.Write([]string{
			p.Name, decimal(p.CPU), decimal(p.HostMemoryMiB), strconv.Itoa(p.Cards), decimal(p.CoreMilli),
			strings.Join(p.Models, "|"), p.QoS, p.Phase,
			decimal(p.Created), decimal(p.Deleted), decimal(p.Scheduled), decimal(p.CardMemoryMiB),
		})
	}
	out.Flush()
	return out.Error()
}

func decimal(v int64) string { return strconv.FormatInt(v, 10) }

// Hashed is name as an export shows it: the same for the same name and key, and not
// to be read back. The key is drawn once an export and thrown away.
func Hashed(key []byte, name string) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(name))
	return hex.EncodeToString(mac.Sum(nil)[:8])
}
