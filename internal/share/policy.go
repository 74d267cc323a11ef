package share

import "fmt"

// Policy is how a node divides a card's compute among ordinary tenants.
type Policy string

const (
	BestEffort Policy = "best-effort" // equal slices to whoever has work
	FixedShare Policy = "fixed-share" // core, never more, even on an idle card
	BurstShare Policy = "burst-share" // core guaranteed, idle time to whoever has work
)

// policyNames are the long names and the short ones of TKE's node label.
var policyNames = map[string]Policy{
	"best-effort": BestEffort, "be": BestEffort,
	"fixed-share": FixedShare, "fs": FixedShare,
	"burst-share": BurstShare, "bs": BurstShare,
}

// ParsePolicy reads a policy by its full or short name.
func ParsePolicy(s string) (Policy, error) {
	if p, ok := policyNames[s]; ok {
		return p, nil
	}
	return "", fmt.Errorf("policy %q is unknown; the policies are best-effort (be), fixed-share (fs) and burst-share (bs)", s)
}
