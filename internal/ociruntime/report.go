package ociruntime

import (
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// report writes why a command failed where runc would: container engines read it from the
// file of --log, in its format (json, or else logfmt).
func (c *commandLine) report(failure error, now time.Time) error {
	if c.log == "" {
		return nil
	}
	at := now.Format(time.RFC3339)
	line := fmt.Appendf(nil, "time=%q level=error msg=%q", at, failure.Error())
	if c.logFormat == "json" {
		var err error
		line, err = json.Marshal(struct {
			Level string `json:"level"`
			Msg   string `json:"msg"`
			Time  string `json:"time"`
		}{"error", failure.Error(), at})
		if err != nil {
			return err
		}
	}
	f, err := os.OpenFile(c.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND|os.O_SYNC, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.Write(append(line, '\n'))
	return err
}
