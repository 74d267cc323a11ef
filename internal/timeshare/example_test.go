package timeshare_test

import (
	"fmt"
	"log"

	"github.com/qgpu-project/qgpu/internal/share"
	"github.com/qgpu-project/qgpu/internal/timeshare"
)

func ExampleNew() {
	tenants := []timeshare.Tenant{
		{ID: "web", Class: share.Online, Groups: 1},
		{ID: "small", Core: 25, Groups: 1},
		{ID: "large", Core: 75, Groups: 6},
		{ID: "night", Class: share.Offline, Core: 40, Groups: 1},
	}
	plan, err := timeshare.New(share.BurstShare, timeshare.DefaultLimits(), tenants)
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range plan.Settings {
		fmt.Printf("%-6s %5d µs a group, %3.0f %% of the card, at most %3.0f %%\n", s.ID, s.Slice, 100*s.Share, 100*s.Cap)
	}
	// Output:
	// web    32768 µs a group, 100 % of the card, at most 100 %
	// small   1024 µs a group,  25 % of the card, at most 100 %
	// large    512 µs a group,  75 % of the card, at most 100 %
	// night    256 µs a group, 100 % of the card, at most  40 %
}
