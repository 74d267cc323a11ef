package qgpucmd

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/qgpu-project/qgpu/internal/launch"
	"github.com/qgpu-project/qgpu/internal/share"
)

func (o *options) runCommand() *cobra.Command {
	var req launch.Request
	var class, policy, user string
	c := &cobra.Command{
		Use:   "run [flags] -- PROGRAM [ARGS…]",
		Short: "Run a program on a share of a card",
		Long: `Run a program on a share of a card: the least loaded that has room, or the one
named. The program is held to its share together with all that it starts; exit
code, signals, terminal and working directory are its own.`,
		Example: `  qgpu run --core 30 --memory 5Gi -- python train.py
  qgpu run --memory 4Gi --driver simulated -- nvidia-smi`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			var err error
			if req.Share.Class, err = share.ParseClass(class); err != nil {
				return err
			}
			if policy != "" {
				if req.Policy, err = share.ParsePolicy(policy); err != nil {
					return err
				}
			}
			if req.User, err = parseUser(user); err != nil {
				return err
			}
			req.Program, req.StateDir = args, o.stateDir
			if req.Share == (share.Share{}) {
				req.Share.Core = share.Whole // nothing asked for: a whole card
			}
			if err := req.Share.Validate(); err != nil {
				return err
			}
			node, err := launch.Open(c.Context(), o.driver, o.simDir)
			if err != nil {
				return err
			}
			return launch.Run(c.Context(), node, req)
		},
	}
	o.driverFlag(c)
	flags := c.Flags()
	flags.IntVar(&req.Share.Core, "core", 0, "compute, in percent of a card: 5…100 in steps of 5, or N×100 for whole cards")
	flags.Var(&req.Share.Memory, "memory", "card memory, for example 5Gi")
	flags.StringVar(&req.Card, "card", "", "card to use, by index or UUID (default: the least loaded)")
	flags.StringVar(&class, "class", "ordinary", "ordinary, online or offline")
	flags.StringVar(&policy, "policy", "", "best-effort, fixed-share or burst-share: how the card's tenants share its compute (default: as they do already)")
	flags.StringVar(&user, "user", "", "run the program as UID[:GID] (default: as the caller)")
	flags.BoolVar(&req.Interruptible, "interruptible", false, "let signals interrupt calls on the card, as kernels before 5.19 do")
	flags.MarkHidden("interruptible")
	return c
}

// parseUser reads UID or UID:GID; the group is the user's number if left out.
func parseUser(s string) (*launch.User, error) {
	if s == "" {
		return nil, nil
	}
	uidText, gidText, both := strings.Cut(s, ":")
	if !both {
		gidText = uidText
	}
	uid, err := strconv.ParseUint(uidText, 10, 31)
	if err != nil {
		return nil, fmt.Errorf("--user %s: write UID or UID:GID as numbers, for example 1000:1000", s)
	}
	gid, err := strconv.ParseUint(gidText, 10, 31)
	if err != nil {
		return nil, fmt.Errorf("--user %s: write UID or UID:GID as numbers, for example 1000:1000", s)
	}
	return &launch.User{UID: int(uid), GID: int(gid)}, nil
}
