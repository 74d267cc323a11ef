package tenant

import (
	"context"
	"fmt"
	"net"
	"os"
)

// short calls f with a short path to name in the folder dir: a socket's path has at
// most 107 bytes, and a tenant's folder may be named by a container's id of 64.
func short(dir, name string, f func(path string) error) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return f(fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), name))
}

// listen makes a socket in dir. It stays there when its listener is closed.
func listen(dir, name string) (file *os.File, err error) {
	err = short(dir, name, func(path string) error {
		listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			return err
		}
		defer listener.Close()
		listener.SetUnlinkOnClose(false)
		file, err = listener.File()
		return err
	})
	return file, err
}

// dial connects to a socket in dir.
func dial(ctx context.Context, dir, name string) (conn *net.UnixConn, err error) {
	err = short(dir, name, func(path string) error {
		var d net.Dialer
		c, err := d.DialContext(ctx, "unix", path)
		if err != nil {
			return err
		}
		conn = c.(*net.UnixConn)
		return nil
	})
	return conn, err
}

// Join connects to where the container id takes over processes that are executed in it.
func (r *Registry) Join(ctx context.Context, id string) (*net.UnixConn, error) {
	conn, err := dial(ctx, r.path(id), joinFile)
	if err != nil {
		return nil, fmt.Errorf("container %s's mediator does not answer: %w", id, err)
	}
	return conn, nil
}
