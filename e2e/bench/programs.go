package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"time"
)

// hostProgram is a program without a GPU that makes many system calls.
type hostProgram struct {
	name string
	args []string
}

var hostPrograms = []hostProgram{
	{"dd bs=1, 300,000 bytes", []string{"dd", "if=/dev/zero", "of=/dev/null", "bs=1", "count=300000", "status=none"}},
	{"find, names of a tree", []string{"find", "/usr/lib", "/usr/share", "-xdev", "-name", "*.nothing"}},
	{"grep -r, a tree", []string{"grep", "-rqs", "no such text anywhere", "/usr/share/perl", "/usr/share/doc"}},
	{"sh, started 300 times", []string{"sh", "-c", "i=0; while [ $i -lt 300 ]; do sh -c :; i=$((i+1)); done"}},
}

// programTime is what a program took, in seconds.
type programTime struct {
	Wall      float64 `json:"wall_s"`
	Processor float64 `json:"processor_s"`
}

// measurePrograms runs every host program once and prints their programTimes.
func measurePrograms(w io.Writer) error {
	var times []programTime
	for _, p := range hostPrograms {
		cmd := exec.Command(p.args[0], p.args[1:]...)
		start := time.Now()
		err := cmd.Run()
		wall := time.Since(start)
		// grep that finds nothing and find in a changing tree say so in their status.
		if cmd.ProcessState == nil || !cmd.ProcessState.Exited() || cmd.ProcessState.ExitCode() > 2 {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		used := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		times = append(times, programTime{Wall: wall.Seconds(), Processor: used.Seconds()})
	}
	return json.NewEncoder(w).Encode(times)
}
