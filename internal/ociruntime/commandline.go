package ociruntime

import (
	"fmt"
	"path/filepath"
	"strings"
)

// commandLine is a command line of runc's, as far as the wrapper looks at it. All else
// it hands on as it is.
type commandLine struct {
	args    []string // without the program
	command string   // create, exec, …; empty: none
	id      string   // of the container
	// Global flags.
	log, logFormat string
	// Flags of commands.
	bundle  string // of create and run
	process string // of exec: the file that describes the process; empty: flags do
	caps    []string
}

// valueFlags are the flags that take a value, by command; those of "" come before it.
// Others take none (runc's main.go, create.go, run.go, exec.go, delete.go).
var valueFlags = map[string][]string{
	"":       {"log", "log-format", "root", "criu", "rootless"},
	"create": {"bundle", "b", "console-socket", "pidfd-socket", "pid-file", "preserve-fds"},
	"run":    {"bundle", "b", "console-socket", "pidfd-socket", "pid-file", "preserve-fds"},
	"exec": {"console-socket", "pidfd-socket", "cwd", "env", "e", "user", "u", "additional-gids", "g", "process", "p",
		"pid-file", "process-label", "apparmor", "cap", "c", "preserve-fds", "cgroup"},
	"delete": {},
}

// parse reads args. It never fails: what runc would refuse, runc refuses.
func parse(args []string) commandLine {
	c := commandLine{args: args, bundle: "."}
	at := c.flags(0, "", c.global)
	if at == len(args) {
		return c
	}
	c.command = args[at]
	if _, ok := valueFlags[c.command]; !ok {
		return c
	}
	if at = c.flags(at+1, c.command, c.local); at < len(args) {
		c.id = args[at]
	}
	return c
}

// flags reads a command's flags from args[at] on, and returns where they end.
func (c *commandLine) flags(at int, command string, set func(name, value string)) int {
	for ; at < len(c.args); at++ {
		arg := c.args[at]
		if arg == "--" {
			return at + 1
		}
		if len(arg) < 2 || arg[0] != '-' {
			return at
		}
		name, value, assigned := strings.Cut(strings.TrimPrefix(arg[1:], "-"), "=")
		if !assigned && takesValue(command, name) {
			if at++; at == len(c.args) {
				return at
			}
			value = c.args[at]
		}
		set(name, value)
	}
	return at
}

func takesValue(command, name string) bool {
	for _, f := range valueFlags[command] {
		if f == name {
			return true
		}
	}
	return false
}

func (c *commandLine) global(name, value string) {
	switch name {
	case "log":
		c.log = value
	case "log-format":
		c.logFormat = value
	}
}

func (c *commandLine) local(name, value string) {
	switch name {
	case "bundle", "b":
		c.bundle = value
	case "process", "p":
		if c.command == "exec" {
			c.process = value
		}
	case "cap", "c":
		if c.command == "exec" {
			c.caps = append(c.caps, value)
		}
	}
}

// config is the path of the bundle's configuration.
func (c *commandLine) config() string { return filepath.Join(c.bundle, "config.json") }

// root is the path of the container's root file system in the bundle.
func (c *commandLine) root(path string) (string, error) {
	if !filepath.IsAbs(path) {
		path = filepath.Join(c.bundle, path)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("find the container's root: %w", err)
	}
	return abs, nil
}
