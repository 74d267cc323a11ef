package ociruntime

import (
	"bytes"
	"strings"
	"testing"
)

func TestState(t *testing.T) {
	s, err := readState(strings.NewReader(`{"ociVersion":"1.0.2","id":"c1","status":"creating","pid":4711,"bundle":"/b"}`))
	if err != nil || s.ID != "c1" || s.Pid != 4711 {
		t.Errorf("%+v, %v", s, err)
	}
	for _, text := range []string{"", "{", `{"id":"c1"}`, `{"pid":1}`, `{"id":"c1","pid":-1}`} {
		if s, err := readState(strings.NewReader(text)); err == nil {
			t.Errorf("%q is the state %+v", text, s)
		}
	}
}

func FuzzState(f *testing.F) {
	f.Add([]byte(`{"ociVersion":"1.0.2","id":"c1","status":"creating","pid":4711,"bundle":"/b"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if s, err := readState(bytes.NewReader(text)); err == nil && (s.ID == "" || s.Pid <= 0) {
			t.Errorf("the state names no process: %+v", s)
		}
	})
}
