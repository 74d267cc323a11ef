package main

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/qgpu-project/qgpu/internal/nvabi"
)

// outsider runs in a container without a share. It listens at the socket that args name
// for a tenant's files, and makes every call that makes or uses an object of the driver's
// on each of them, by either call convention. What does not fail with EPERM has reached
// the file.
func outsider(r *report, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("name the socket")
	}
	files, _, err := receiveFiles(args[0])
	if err != nil {
		return err
	}
	low, err := lowMemory()
	if err != nil {
		return err
	}
	address := block(low).address()
	numbers := nvabi.AllUVMNumbers()
	for _, match := range nvabi.ObjectMatches() {
		// The driver looks at neither type nor direction.
		numbers = append(numbers, match.Value, match.Value|3<<30|'F'<<8, match.Value|'T'<<8)
	}
	for _, fd := range files {
		for _, n := range numbers {
			errno := rawIoctl(fd, uint64(n), address)
			r.forbidden(errno != unix.EPERM, "ioctl %#x of a tenant's file answered %v", n, errno)
			result, available := tryInt80(i386Ioctl, uint32(fd), n, uint32(address))
			if !available {
				r.NoI386 = true
				continue
			}
			r.forbidden(result != -int32(unix.EPERM), "i386 ioctl %#x of a tenant's file answered %d", n, result)
		}
	}
	// Other ioctls go where they did.
	_, err = unix.IoctlGetTermios(files[0], unix.TCGETS)
	r.allowed(err != nil && err != unix.EPERM, "TCGETS: %v", err)
	return nil
}
