// Package cli owns what qgpu's command-line programs share: how they end.
package cli

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

// ExitError ends a program with a code of its own and no message, such as the
// code of a program that it ran.
type ExitError struct{ Code int }

func (e *ExitError) Error() string { return fmt.Sprintf("exit code %d", e.Code) }

// Run executes c and returns the process's exit code. An error is written to
// standard error as one line.
func Run(c *cobra.Command) int {
	c.SilenceErrors = true
	c.SilenceUsage = true
	err := c.ExecuteContext(context.Background())
	var exit *ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.Code
	}
	fmt.Fprintf(os.Stderr, "%s: %v\n", c.DisplayName(), err)
	return 1
}
