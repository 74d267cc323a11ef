package simgpu

import (
	"encoding/binary"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// watcher sees the last close of device files: the hang-up of a pipe whose write
// end the holders have, and inotify's IN_CLOSE_WRITE of a file that they map.
type watcher struct {
	epoll   int
	inotify int
	wake    int // an eventfd that ends wait

	mu    sync.Mutex
	pipes map[int32]FileID // by the descriptor of the read end
	files map[int32]FileID // by inotify watch
}

func newWatcher() (*watcher, error) {
	w := &watcher{epoll: -1, inotify: -1, wake: -1, pipes: map[int32]FileID{}, files: map[int32]FileID{}}
	err := w.open()
	if err != nil {
		w.closeAll()
		return nil, fmt.Errorf("watching device files: %w", err)
	}
	return w, nil
}

func (w *watcher) open() (err error) {
	if w.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return err
	}
	if w.inotify, err = unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK); err != nil {
		return err
	}
	if w.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return err
	}
	for _, fd := range []int{w.inotify, w.wake} {
		if err := w.poll(fd, unix.EPOLLIN); err != nil {
			return err
		}
	}
	return nil
}

func (w *watcher) poll(fd int, events uint32) error {
	return unix.EpollCtl(w.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)})
}

// addPipe watches the read end fd of a file's pipe.
func (w *watcher) addPipe(fd int, id FileID) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pipes[int32(fd)] = id
	if err := w.poll(fd, 0); err != nil { // EPOLLHUP is always reported
		delete(w.pipes, int32(fd))
		return fmt.Errorf("watching a device file: %w", err)
	}
	return nil
}

func (w *watcher) removePipe(fd int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.pipes, int32(fd))
	_ = unix.EpollCtl(w.epoll, unix.EPOLL_CTL_DEL, fd, nil)
}

// addClose watches the file at path for the close of a writer.
func (w *watcher) addClose(path string, id FileID) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	wd, err := unix.InotifyAddWatch(w.inotify, path, unix.IN_CLOSE_WRITE)
	if err != nil {
		return fmt.Errorf("watching a UVM file (fs.inotify.max_user_watches may be used up): %w", err)
	}
	w.files[int32(wd)] = id
	return nil
}

func (w *watcher) removeClose(id FileID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for wd, have := range w.files {
		if have == id {
			delete(w.files, wd)
			_, _ = unix.InotifyRmWatch(w.inotify, uint32(wd))
			return
		}
	}
}

// wait blocks until some file may have been abandoned; it is false once the
// watcher is closed.
func (w *watcher) wait() bool {
	var events [1]unix.EpollEvent
	for {
		n, err := unix.EpollWait(w.epoll, events[:], -1)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 1 && events[0].Fd == int32(w.wake) {
			w.closeAll()
			return false
		}
		return true
	}
}

// abandoned lists some of the files that were closed for the last time, or none.
// It does not block.
func (w *watcher) abandoned() []FileID {
	var events [64]unix.EpollEvent
	n, err := unix.EpollWait(w.epoll, events[:], 0)
	if err != nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	var ids []FileID
	for _, e := range events[:n] {
		switch id, isPipe := w.pipes[e.Fd]; {
		case isPipe && e.Events&unix.EPOLLHUP != 0:
			ids = append(ids, id)
		case e.Fd == int32(w.inotify):
			ids = append(ids, w.readInotify()...)
		}
	}
	return ids
}

// readInotify takes what inotify has to say.
func (w *watcher) readInotify() (ids []FileID) {
	var buf [4096]byte
	for {
		n, err := unix.Read(w.inotify, buf[:])
		if err != nil || n <= 0 {
			return ids
		}
		for b := buf[:n]; len(b) >= unix.SizeofInotifyEvent; {
			wd := int32(binary.NativeEndian.Uint32(b[0:]))
			mask := binary.NativeEndian.Uint32(b[4:])
			name := binary.NativeEndian.Uint32(b[12:])
			if id, known := w.files[wd]; known && mask&unix.IN_CLOSE_WRITE != 0 {
				ids = append(ids, id)
			}
			b = b[min(len(b), unix.SizeofInotifyEvent+int(name)):]
		}
	}
}

// close ends wait.
func (w *watcher) close() {
	_, _ = unix.Write(w.wake, binary.NativeEndian.AppendUint64(nil, 1))
}

func (w *watcher) closeAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, fd := range []int{w.epoll, w.inotify, w.wake} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}
