package placementcmd

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const testTrace = "../../replay/testdata"

func execute(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	c := New()
	c.SetOut(&out)
	c.SetErr(io.Discard)
	c.SetArgs(args)
	err := c.ExecuteContext(t.Context())
	return out.String(), err
}

func TestTablesAndCurves(t *testing.T) {
	svg := filepath.Join(t.TempDir(), "curves.svg")
	args := []string{"--trace", testTrace, "--policy", "frag,best-fit", "--seeds", "1-2", "--svg", svg}
	out, err := execute(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"inflation to 1.3", "\nfrag ", "\nbest-fit ", " ± "} {
		if !strings.Contains(out, want) {
			t.Errorf("the table has no %q:\n%s", want, out)
		}
	}
	if again, err := execute(t, args...); err != nil || again != out {
		t.Errorf("another table the second time, %v:\n%s", err, again)
	}
	f, err := os.Open(svg)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := 0
	for d := xml.NewDecoder(f); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "polyline" {
			lines++
		}
	}
	if lines != 2 {
		t.Errorf("%d curves, want 2", lines)
	}
}

func TestOtherProtocols(t *testing.T) {
	for protocol, want := range map[string]string{"churn": "churn at 0.95", "history": "mean wait"} {
		out, err := execute(t, "--trace", testTrace, "--policy", "frag", "--seeds", "1", "--protocol", protocol)
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("%s: %v\n%s", protocol, err, out)
		}
	}
}

func TestMistakesAreExplained(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--trace", testTrace, "--policy", "worst-fit"}, "the policies are random"},
		{[]string{"--trace", testTrace, "--seeds", "9-1"}, "write for example 42-51"},
		{[]string{"--trace", testTrace, "--protocol", "replay"}, "the protocols are inflation, churn and history"},
		{[]string{"--trace", testTrace, "--load", "-1"}, "is not in 0…10"},
		{[]string{"--trace", "/nonexistent"}, "has no trace"},
		{[]string{}, "required"},
	} {
		if _, err := execute(t, tt.args...); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: %v, want %q", tt.args, err, tt.want)
		}
	}
}

func TestParseSeeds(t *testing.T) {
	got, err := parseSeeds("3, 10-12")
	if err != nil || !slices.Equal(got, []int64{3, 10, 11, 12}) {
		t.Errorf("parseSeeds = %v, %v", got, err)
	}
}

func TestTicksAreRound(t *testing.T) {
	if got := ticks(80, 130); !slices.Equal(got, []float64{80, 90, 100, 110, 120, 130}) {
		t.Errorf("ticks = %v", got)
	}
}
