package engine

// Chip holds the facts of a card that decide how long its work takes.
type Chip struct {
	Name            string
	SMs             int    // streaming multiprocessors
	ThreadsPerSM    int    // resident at once
	BlocksPerSM     int    // resident at once
	ClockMHz        int    // of the SMs
	MemoryBandwidth uint64 // of video memory, bytes/s
	BusBandwidth    uint64 // of the link to the host, bytes/s, each way
	CopyEngines     int
}
