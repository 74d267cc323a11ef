package e2e

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/qgpu-project/qgpu/internal/agentapi"
	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/share"
	"github.com/qgpu-project/qgpu/internal/tenant"
)

// TestContainers runs containers as Docker would: an image without anything of NVIDIA's
// gets its card, its quota, and nvidia-smi; two share one card with quotas of their own.
func TestContainers(t *testing.T) {
	for _, c := range []config{{driver: "535"}, {model: "a100", driver: "550"}} {
		t.Run(c.String(), func(t *testing.T) {
			e := newEngine(t, c)
			idle := e.cardUsed()
			five := e.startContainer("five", asking(e.spec("five", "cudaload", "fill", "--hold"), "5Gi", "QGPU_CORE=30"))
			checkFull(t, decode[filled](t, five.line()), 5<<30)
			eight := e.startContainer("eight", asking(e.spec("eight", "cudaload", "fill", "--hold"), "8Gi", "QGPU_CARD=0"))
			checkFull(t, decode[filled](t, eight.line()), 8<<30)
			if out := e.mustRun("qgpu", "ps"); !containsAll(out, "five", "eight") {
				t.Errorf("qgpu ps shows\n%s", out)
			}
			eight.end()
			e.mustRuntime("delete", "--force", "eight")
			r := e.runContainer("smi", asking(e.spec("smi", "nvidia-smi", "--query-gpu=memory.total,count", "--format=csv,noheader"), "8Gi"))
			if r.stdout != "8192 MiB, 1\n" {
				t.Errorf("nvidia-smi exited with %d and shows %q %q, want the quota of 8192 MiB on one card", r.code, r.stdout, r.stderr)
			}
			five.kill()
			e.mustRuntime("delete", "--force", "five")
			e.gone()
			if used := e.cardUsed(); used != idle {
				t.Errorf("%s MiB of the card are used after all containers, %s before", used, idle)
			}
		})
	}
}

// gone checks that nothing of any container is left.
func (e *engine) gone() {
	e.t.Helper()
	if left := e.folders(); len(left) > 0 {
		e.t.Errorf("tenants' folders are left: %v", left)
	}
	e.eventually("no process of a container is left", func() bool { return len(e.processes()) == 0 })
}

// TestExecuted executes processes in a container: they use the container's card, and what
// they allocate counts to its quota.
func TestExecuted(t *testing.T) {
	e := newEngine(t, config{})
	c := e.startContainer("c", asking(e.spec("c", "cudaload", "fill", "--hold", "--limit", "1Gi"), "2Gi"))
	c.line()
	half := decode[filled](t, e.mustRuntime("exec", "c", "cudaload", "fill"))
	if half.Error != "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY" || half.Allocated > 1<<30 || half.Allocated < 512<<20 {
		t.Errorf("beside 1 GiB of 2 a process that was executed allocated %d MiB, and then %q", half.Allocated/mib, half.Error)
	}
	// As an engine does: the process in a file, with an environment that knows nothing of NVIDIA's.
	p := &specs.Process{Args: []string{"nvidia-smi", "-L"}, Cwd: "/", Env: []string{"PATH=/bin"}}
	if out := e.execFile("c", p); out.code != 0 || strings.Count(out.stdout, "Tesla T4") != 1 {
		t.Errorf("nvidia-smi in the container: %+v", out)
	}
	p.Capabilities = &specs.LinuxCapabilities{Bounding: []string{"CAP_SYS_ADMIN"}}
	if out := e.execFile("c", p); out.code == 0 || !strings.Contains(out.stderr, "may have CAP_SYS_ADMIN") {
		t.Errorf("a privileged process in the container: %+v", out)
	}
	if out := e.runtime("exec", "--cap", "CAP_SYS_ADMIN", "c", "nvidia-smi"); out.code == 0 || !strings.Contains(out.stderr, "may have CAP_SYS_ADMIN") {
		t.Errorf("a process with CAP_SYS_ADMIN: %+v", out)
	}
	// Many at once, as probes are.
	var all []func()
	for range 12 {
		all = append(all, func() {
			if out := e.runtime("exec", "c", "cudaload", "info"); out.code != 0 {
				t.Errorf("one of many: %+v", out)
			}
		})
	}
	inParallel(all, 4)
	c.end()
	e.mustRuntime("delete", "--force", "c")
	e.gone()
	if out := e.runtime("exec", "c", "cudaload", "info"); out.code == 0 {
		t.Errorf("a process was executed in a container that has ended: %+v", out)
	}
}

// execFile executes a process that a file describes.
func (e *engine) execFile(id string, p *specs.Process) result {
	e.t.Helper()
	path := filepath.Join(e.dir, "process.json")
	if err := os.WriteFile(path, []byte(encode(e.t, p)), 0o600); err != nil {
		e.t.Fatal(err)
	}
	return e.runtime("exec", "--process", path, id)
}

// TestProfiles combines the tenant's filter with seccomp profiles: what the profile denies
// stays denied, and what it allows is mediated all the same.
func TestProfiles(t *testing.T) {
	e := newEngine(t, config{})
	fill := func(id string, p *specs.LinuxSeccomp) result {
		spec := asking(e.spec(id, "cudaload", "fill"), "1Gi")
		spec.Linux.Seccomp = p
		return e.runContainer(id, spec)
	}
	r := fill("whitelist", &specs.LinuxSeccomp{DefaultAction: specs.ActErrno, Architectures: []specs.Arch{specs.ArchX86_64, specs.ArchX86, specs.ArchX32},
		Syscalls: []specs.LinuxSyscall{{Names: ordinaryCalls, Action: specs.ActAllow}}})
	if r.code != 0 {
		t.Errorf("under a profile that allows what it lists: %+v", r)
	} else {
		checkFull(t, decode[filled](t, r.stdout), 1<<30)
	}
	eperm := uint(syscall.EPERM)
	r = fill("strict", &specs.LinuxSeccomp{DefaultAction: specs.ActAllow,
		Syscalls: []specs.LinuxSyscall{{Names: []string{"ioctl"}, Action: specs.ActErrno, ErrnoRet: &eperm}}})
	if r.code == 0 {
		t.Errorf("under a profile that denies ioctl a CUDA program works: %+v", r)
	}
	r = fill("listening", &specs.LinuxSeccomp{DefaultAction: specs.ActAllow, ListenerPath: "/run/another.sock",
		Syscalls: []specs.LinuxSyscall{{Names: []string{"mkdir"}, Action: specs.ActNotify}}})
	if r.code == 0 || !strings.Contains(r.stderr, "listener of its own") {
		t.Errorf("under a profile with a listener: %+v", r)
	}
	e.gone()
}

// TestRefused refuses containers that could reach a card past their share. The reason is one
// line, on stderr and in the log that engines read. Nothing of them is left.
func TestRefused(t *testing.T) {
	e := newEngine(t, config{})
	for _, tt := range []struct {
		name string
		edit func(*specs.Spec)
		says string
	}{
		{"privileged", func(s *specs.Spec) {
			s.Process.Capabilities.Bounding = append(slices.Clone(dockerCapabilities), "CAP_SYS_ADMIN", "CAP_SYS_MODULE")
		}, "may have CAP_SYS_ADMIN"},
		{"every device", func(s *specs.Spec) {
			s.Linux.Resources.Devices = []specs.LinuxDeviceCgroup{{Allow: true, Access: "rwm"}}
		}, "may open every device"},
		{"the state folder", func(s *specs.Spec) {
			s.Mounts = append(s.Mounts, specs.Mount{Destination: "/host", Type: "bind", Source: filepath.Dir(e.stateDir), Options: []string{"rbind"}})
		}, "change its own share"},
		{"the machine's root", func(s *specs.Spec) { s.Root.Path = "/" }, "change its own share"},
		{"too much memory", func(s *specs.Spec) { asking(s, "100Gi") }, "no room: card 0 has"},
		{"a broken rule", func(s *specs.Spec) { asking(s, "1Gi", "QGPU_CORE=33") }, "the nearest is 35"},
		{"no number", func(s *specs.Spec) { asking(s, "much") }, "QGPU_MEMORY: memory \"much\" is not an amount"},
		{"no such card", func(s *specs.Spec) { asking(s, "1Gi", "QGPU_CARD=7") }, "there is no such card"},
	} {
		spec := asking(e.spec("refused", "nvidia-smi"), "1Gi")
		tt.edit(spec)
		r := e.runtime("create", "--bundle", e.bundle("refused", spec), "refused")
		if r.code == 0 || !strings.Contains(r.stderr, tt.says) || strings.Count(r.stderr, "\n") != 1 {
			t.Errorf("%s: exited with %d: %s, want one line with %q", tt.name, r.code, r.stderr, tt.says)
		}
		if msg := e.logged(); !strings.Contains(msg, tt.says) {
			t.Errorf("%s: the log says %q", tt.name, msg)
		}
		e.runtime("delete", "--force", "refused")
		e.gone()
	}
}

// TestUntouched leaves containers alone that have no share: their bundles stay as they are.
func TestUntouched(t *testing.T) {
	e := newEngine(t, config{})
	sandbox := e.spec("sandbox", "sh", "-c", "ls /dev | grep -c nvidia")
	sandbox.Annotations = map[string]string{"io.kubernetes.cri.container-type": "sandbox", "io.kubernetes.cri.sandbox-uid": "u"}
	for id, spec := range map[string]*specs.Spec{"plain": e.spec("plain", "sh", "-c", "ls /dev | grep -c nvidia"), "sandbox": sandbox} {
		dir := e.bundle(id, spec)
		before, _ := os.ReadFile(filepath.Join(dir, "config.json"))
		if r := e.runtime("run", "--bundle", dir, id); r.stdout != "0\n" {
			t.Errorf("%s: %+v, want no device of NVIDIA's", id, r)
		}
		after, err := os.ReadFile(filepath.Join(dir, "config.json"))
		if err != nil || string(after) != string(before) {
			t.Errorf("%s: its bundle was changed (%v)", id, err)
		}
	}
	if r := e.runtime("--version"); r.code != 0 || !strings.Contains(r.stdout, "runc version") {
		t.Errorf("--version: %+v", r)
	}
	e.gone()
}

// TestCreateKilled kills the runtime at any moment of a container's creation, and then does
// what an engine does: delete. Nothing is left.
func TestCreateKilled(t *testing.T) {
	e := newEngine(t, config{})
	idle := e.cardUsed()
	const kills, longest = 24, 1200 * time.Millisecond
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for i := range kills {
		id := fmt.Sprintf("k%d", i)
		cmd := e.create(id, asking(e.spec(id, "cudaload", "fill"), "12Gi"))
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(random.Int64N(int64(longest))))
		cmd.Process.Kill()
		cmd.Wait()
		e.runtime("delete", "--force", id)
		e.eventually("the killed container's place is free", func() bool { return len(e.living()) == 0 })
	}
	e.eventually("no process of a container is left", func() bool { return len(e.processes()) == 0 })
	r := e.runContainer("after", asking(e.spec("after", "cudaload", "fill"), "12Gi"))
	checkFull(t, decode[filled](t, r.stdout), 12<<30)
	e.gone()
	if used := e.cardUsed(); used != idle {
		t.Errorf("%s MiB of the card are used at the end, %s at the beginning", used, idle)
	}
}

func (e *engine) living() []tenant.Tenant {
	e.t.Helper()
	living, err := tenant.At(e.stateDir).List()
	if err != nil {
		e.t.Fatal(err)
	}
	return living
}

// TestContainerMediatorKilled kills a container's mediator: the container loses its card, keeps its
// place until it has ended, and the failure is on record.
func TestContainerMediatorKilled(t *testing.T) {
	e := newEngine(t, config{})
	c := e.startContainer("c", asking(e.spec("c", "sh", "-c", "cudaload fill --limit 64Mi; echo; read x; nvidia-smi -L; echo $?; read x"), "1Gi"))
	c.line()
	c.line()
	state, err := tenant.At(e.stateDir).State(context.Background(), "c")
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(state.Mediator, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	e.eventually("the mediator is dead", func() bool { return syscall.Kill(state.Mediator, 0) != nil })
	fmt.Fprintln(c.stdin)
	for line := c.line(); line != "0"; line = c.line() {
		if strings.Contains(line, "GPU 0:") {
			t.Errorf("without a mediator nvidia-smi shows %q", line)
		}
		if len(line) < 4 && line != "0" {
			break // the exit code
		}
	}
	if living := e.living(); len(living) != 1 || living[0].PID == 0 {
		t.Errorf("while the container lives its place is %+v", living)
	}
	if r := e.runtime("exec", "c", "cudaload", "info"); r.code == 0 || !strings.Contains(r.stderr, "mediator does not answer") {
		t.Errorf("a process in a container without a mediator: %+v", r)
	}
	c.end()
	e.mustRuntime("delete", "--force", "c")
	e.gone()
}

// TestPod runs a container of a pod as containerd describes it: the agent says what it may
// have, and on which card.
func TestPod(t *testing.T) {
	e := newEngine(t, config{cards: 2})
	second := e.cards()[1]
	on := func(memory share.Memory) agentapi.Grant {
		return agentapi.Grant{Share: share.Share{Core: 30, Memory: memory}, Policy: share.FixedShare, Driver: "simulated",
			Slices: []placement.Slice{{Index: second.Minor, UUID: second.UUID, Core: 30, Memory: memory}}}
	}
	e.serveAgent(granter{
		"main": on(2 * share.GiB), "next": on(14 * share.GiB), "side": {},
	})
	pod := func(name string, args ...string) *specs.Spec {
		spec := e.ofPod(name, args...)
		spec.Process.Env = append(spec.Process.Env, "QGPU_MEMORY=15Gi") // a pod's wish counts for nothing
		return spec
	}
	c := e.startContainer("main", pod("main", "cudaload", "fill", "--hold"))
	checkFull(t, decode[filled](t, c.line()), 2<<30)
	living := e.living()
	want := tenant.Owner{PodUID: "uid-1", Namespace: "default", Pod: "pod-1", Container: "main"}
	if len(living) != 1 || living[0].Owner == nil || *living[0].Owner != want || living[0].Policy != share.FixedShare ||
		living[0].Placement[0].UUID != second.UUID {
		t.Errorf("the tenant on record is %+v", living)
	}
	if r := e.runContainer("side", pod("side", "sh", "-c", "ls /dev | grep -c nvidia")); r.stdout != "0\n" {
		t.Errorf("a container of the pod without a share: %+v", r)
	}
	if r := e.runContainer("stranger", pod("stranger", "nvidia-smi")); r.code == 0 || !strings.Contains(r.stderr, "no placement for stranger") {
		t.Errorf("a container that the agent refuses: %+v", r)
	}
	nameless := pod("nameless", "nvidia-smi")
	delete(nameless.Annotations, "io.kubernetes.cri.sandbox-uid")
	if r := e.runContainer("nameless", nameless); r.code == 0 || !strings.Contains(r.stderr, "lacks the annotations io.kubernetes.cri.sandbox-uid") {
		t.Errorf("a container of nobody's: %+v", r)
	}
	// Kubernetes has given its room to another already: that one waits until it is there.
	next := e.startContainer("next", pod("next", "cudaload", "fill"))
	select {
	case line := <-next.lines:
		t.Errorf("before there was room the next container said %q", line)
	case <-time.After(time.Second):
	}
	c.end()
	e.mustRuntime("delete", "--force", "main")
	checkFull(t, decode[filled](t, next.line()), 14<<30)
	next.end()
	e.mustRuntime("delete", "--force", "next")
	e.gone()
}

// listedCard is a card as qgpu-runtime lists it.
type listedCard struct {
	UUID  string
	Minor int
}

func (e *engine) cards() []listedCard {
	e.t.Helper()
	return decode[struct{ Cards []listedCard }](e.t, e.mustRun("qgpu-sim", "run", "--", e.program("qgpu-runtime"), "cards")).Cards
}

// ofPod is the configuration of pod-1's container name as containerd writes it.
func (e *engine) ofPod(name string, args ...string) *specs.Spec {
	spec := e.spec(name, args...)
	spec.Annotations = map[string]string{
		"io.kubernetes.cri.container-type": "container", "io.kubernetes.cri.container-name": name,
		"io.kubernetes.cri.sandbox-uid": "uid-1", "io.kubernetes.cri.sandbox-namespace": "default", "io.kubernetes.cri.sandbox-name": "pod-1",
	}
	return spec
}

// TestOutsider passes a tenant's device files to a container of its pod that has no share:
// neither the container nor what is executed in it can make the driver's calls on them,
// which a container that nobody filters can.
func TestOutsider(t *testing.T) {
	e := newEngine(t, config{})
	path, err := buildAttacker()
	if err != nil {
		t.Fatal(err)
	}
	if err := copyFile(filepath.Join(e.image, "bin/attacker"), path); err != nil {
		t.Fatal(err)
	}
	card := e.cards()[0]
	e.serveAgent(granter{
		"main": {Share: share.Share{Core: 30, Memory: share.GiB}, Policy: share.FixedShare, Driver: "simulated",
			Slices: []placement.Slice{{Index: card.Minor, UUID: card.UUID, Core: 30, Memory: share.GiB}}},
		"side": {Outsider: true}, "plain": {},
	})
	passing := filepath.Join(e.dir, "passing")
	if err := os.Mkdir(passing, 0o777); err != nil {
		t.Fatal(err)
	}
	pod := func(name string, args ...string) *specs.Spec {
		spec := e.ofPod(name, args...)
		spec.Mounts = append(spec.Mounts, specs.Mount{Destination: "/passing", Type: "bind", Source: passing, Options: []string{"rbind"}})
		return spec
	}
	send := func(to string) {
		t.Helper()
		if r := e.runtime("exec", "main", "attacker", "send", "/passing/"+to); r.code != 0 {
			t.Fatalf("the tenant passed nothing to %s: %+v", to, r)
		}
	}
	main := e.startContainer("main", pod("main", "cudaload", "fill", "--hold", "--limit", "256Mi"))
	main.line()
	const tries = 500
	side := e.startContainer("side", pod("side", "attacker", "outsider", "/passing/side"))
	send("side")
	side.report().check(t, tries)
	executed := e.startCommand(e.call("exec", "side", "attacker", "outsider", "/passing/executed"))
	send("executed")
	executed.report().check(t, tries)
	plain := e.startContainer("plain", pod("plain", "attacker", "outsider", "/passing/plain"))
	send("plain")
	if r := plain.report(); r.Through != r.Tries || r.Tries < tries {
		t.Errorf("of %d calls in a container without a filter %d reached a file", r.Tries, r.Through)
	}
	for id, b := range map[string]*background{"executed": executed, "side": side, "plain": plain, "main": main} {
		b.end()
		e.runtime("delete", "--force", id)
	}
	if left, _ := os.ReadDir(filepath.Join(e.stateDir, "outsiders")); len(left) > 0 {
		t.Errorf("what was recorded of containers is left: %v", left)
	}
	e.gone()
}

// granter answers by containers' names.
type granter map[string]agentapi.Grant

func (g granter) Grant(_ context.Context, c agentapi.Container) (agentapi.Grant, error) {
	grant, ok := g[c.Name]
	if !ok {
		return grant, &agentapi.Refusal{Reason: "there is no placement for " + c.Name}
	}
	return grant, nil
}

func (granter) Ready() error { return nil }

// serveAgent serves g as the node's agent until the test ends.
func (e *engine) serveAgent(g agentapi.Granter) {
	e.t.Helper()
	if err := os.MkdirAll(e.stateDir, 0o755); err != nil {
		e.t.Fatal(err)
	}
	l, err := agentapi.Listen(filepath.Join(e.stateDir, agentapi.DefaultSocket))
	if err != nil {
		e.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- agentapi.Serve(ctx, l, agentapi.Handler(g, slog.New(slog.DiscardHandler))) }()
	e.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			e.t.Error(err)
		}
	})
}

// ordinaryCalls are what a profile such as containerd's allows, as far as the programs of
// these tests need it.
var ordinaryCalls = strings.Fields(`access arch_prctl brk capget capset chdir clock_getres clock_gettime clock_nanosleep clone clone3
	close close_range connect dup dup2 dup3 epoll_create1 epoll_ctl epoll_pwait epoll_wait eventfd2 execve exit exit_group faccessat
	faccessat2 fadvise64 fchdir fchmod fchown fcntl fork fstat fstatfs ftruncate futex getcwd getdents64 getegid geteuid getgid
	getpgrp getpid getppid getrandom getresgid getresuid getrlimit getsockname getsockopt gettid gettimeofday getuid ioctl kill lseek
	lstat madvise memfd_create mincore mkdir mkdirat mmap mprotect mremap munmap nanosleep newfstatat open openat openat2 pipe pipe2
	poll ppoll prctl pread64 prlimit64 pselect6 pwrite64 read readlink readlinkat readv recvfrom recvmsg restart_syscall rseq
	rt_sigaction rt_sigprocmask rt_sigreturn rt_sigsuspend sched_getaffinity sched_getparam sched_getscheduler sched_setaffinity
	sched_yield seccomp select sendmsg sendto set_robust_list set_tid_address setgid setgroups setitimer setresgid setresuid
	setsockopt setuid sigaltstack socket socketpair stat statfs statx sysinfo tgkill time timer_create timer_delete timer_settime
	accept4 alarm bind chmod creat flock fsync getpeername getpgid getpriority getsid getxattr io_setup listen mknod mknodat mlock
	mlock2 mlockall msync munlock personality pidfd_open process_vm_readv rename renameat sched_get_priority_max
	sched_get_priority_min sched_getattr sched_setparam sched_setscheduler setpgid setpriority setrlimit setsid shmat shmctl shmdt
	shmget sync symlink tkill umask uname unlink unlinkat utimensat vfork wait4 waitid write writev`)
