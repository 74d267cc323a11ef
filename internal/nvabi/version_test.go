package nvabi

import "testing"

func TestParseVersion(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want Version
	}{
		{"535.309.01", Version{535, 309, 1}},
		{"545.23.06", Version{545, 23, 6}},
		{"570.86.15", Version{570, 86, 15}},
		{"580.142", Version{580, 142, 0}},
		{"590.44.01", Version{590, 44, 1}},
	} {
		got, err := ParseVersion(tt.in)
		if err != nil || got != tt.want {
			t.Errorf("ParseVersion(%q) = %v, %v; want %v", tt.in, got, err, tt.want)
			continue
		}
		if got.String() != tt.in {
			t.Errorf("ParseVersion(%q).String() = %q", tt.in, got)
		}
	}
	for _, in := range []string{
		"", "535", "535.", ".309.01", "535.309.", "535.309.01.2", "535.309.1a", "535.-3.1", "535.+3.1",
		"535.309.00001", " 535.309.01", "535.309.01\n", "535_309_01", "五三五.309.01",
	} {
		if got, err := ParseVersion(in); err == nil {
			t.Errorf("ParseVersion(%q) = %v, want an error", in, got)
		}
	}
}

func TestParseProcVersion(t *testing.T) {
	for _, tt := range []struct {
		text string
		want Version
	}{
		{"NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.309.01  Tue Feb  3 12:00:00 UTC 2026\nGCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n", Version{535, 309, 1}},
		{"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.142  Release Build  (builder@host)\n", Version{580, 142, 0}},
	} {
		if got, err := ParseProcVersion(tt.text); err != nil || got != tt.want {
			t.Errorf("ParseProcVersion(%q) = %v, %v; want %v", tt.text, got, err, tt.want)
		}
	}
	for _, text := range []string{"", "GCC version: gcc version 12.2.0\n", "NVRM version: NVIDIA UNIX x86_64 Kernel Module\nGCC version: 12.2.0\n"} {
		if got, err := ParseProcVersion(text); err == nil {
			t.Errorf("ParseProcVersion(%q) = %v, want an error", text, got)
		}
	}
}

func TestVersionLess(t *testing.T) {
	ordered := []Version{{535, 86, 5}, {535, 288, 1}, {535, 309, 1}, {550, 40, 7}, {550, 54, 14}, {550, 54, 15}}
	for i, v := range ordered {
		for j, w := range ordered {
			if got, want := v.Less(w), i < j; got != want {
				t.Errorf("%s.Less(%s) = %v, want %v", v, w, got, want)
			}
		}
	}
}

func FuzzParseVersion(f *testing.F) {
	for _, s := range []string{"535.309.01", "580.142", "550.163.01", "", "1.2.3.4", "9999.9999.9999", "0.0.0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		v, err := ParseVersion(s)
		if err != nil {
			if v != (Version{}) {
				t.Errorf("ParseVersion(%q) = %v with an error", s, v)
			}
			return
		}
		again, err := ParseVersion(v.String())
		if err != nil || again != v {
			t.Errorf("ParseVersion(%q) = %v, but %q parses as %v, %v", s, v, v.String(), again, err)
		}
		if v.Less(v) {
			t.Errorf("%v is older than itself", v)
		}
		if _, err := For(v); err == nil && v.Major < branches[0].major {
			t.Errorf("For(%v) knows a branch that has no table", v)
		}
	})
}
