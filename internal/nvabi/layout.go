package nvabi

// Layout holds the offsets of fields that moved between versions.
type Layout struct{}

func resolveLayout(major int) Layout { return Layout{} }
