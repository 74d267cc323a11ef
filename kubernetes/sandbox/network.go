package sandbox

import (
	"fmt"
	"net"
	"os"
	"os/signal"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// startNetwork brings the loopback interface up and lets packets through, in the
// namespace of this process.
func startNetwork() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find the loopback interface: %w", err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("bring the loopback interface up: %w", err)
	}
	return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0)
}

func notifyChildren(c chan os.Signal) { signal.Notify(c, unix.SIGCHLD) }

// Switch is a network that the machines of a sandbox share. The sandbox itself has
// its first address.
type Switch struct {
	bridge netlink.Link
	subnet *net.IPNet
	first  net.IP
}

// NewSwitch makes a switch. cidr is the sandbox's own address with the network's size;
// further are addresses that the sandbox has as well.
func (s *Sandbox) NewSwitch(cidr string, further ...net.IP) (*Switch, error) {
	ip, subnet, err := net.ParseCIDR(cidr)
	if err != nil {
		return nil, err
	}
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}
	if err := netlink.LinkAdd(bridge); err != nil {
		return nil, fmt.Errorf("make a bridge: %w", err)
	}
	addresses := []*net.IPNet{{IP: ip, Mask: subnet.Mask}}
	for _, ip := range further {
		addresses = append(addresses, &net.IPNet{IP: ip, Mask: net.CIDRMask(32, 32)})
	}
	for _, address := range addresses {
		if err := netlink.AddrAdd(bridge, &netlink.Addr{IPNet: address}); err != nil {
			return nil, fmt.Errorf("give the bridge %v: %w", address, err)
		}
	}
	return &Switch{bridge, subnet, ip}, netlink.LinkSetUp(bridge)
}

// Connect gives m the interface eth0 with an address of the switch, and a default route
// to the sandbox. behind is a network that the sandbox then reaches through m.
func (w *Switch) Connect(m *Machine, address net.IP, behind *net.IPNet) error {
	if err := w.connect(m, address, behind); err != nil {
		return fmt.Errorf("connect machine %s at %v: %w", m.Name, address, err)
	}
	return nil
}

func (w *Switch) connect(m *Machine, address net.IP, behind *net.IPNet) error {
	space, err := netns.GetFromPid(m.PID())
	if err != nil {
		return err
	}
	defer space.Close()
	if old, err := netlink.LinkByName(m.Name); err == nil { // of the machine before a reboot
		if err := netlink.LinkDel(old); err != nil {
			return err
		}
	}
	cable := &netlink.Veth{
		LinkAttrs:     netlink.LinkAttrs{Name: m.Name, MasterIndex: w.bridge.Attrs().Index},
		PeerName:      "eth0",
		PeerNamespace: netlink.NsFd(space),
	}
	if err := netlink.LinkAdd(cable); err != nil {
		return err
	}
	if err := netlink.LinkSetUp(cable); err != nil {
		return err
	}
	inner, err := netlink.NewHandleAt(space)
	if err != nil {
		return err
	}
	defer inner.Close()
	eth, err := inner.LinkByName("eth0")
	if err != nil {
		return err
	}
	if err := inner.AddrAdd(eth, &netlink.Addr{IPNet: &net.IPNet{IP: address, Mask: w.subnet.Mask}}); err != nil {
		return err
	}
	if err := inner.LinkSetUp(eth); err != nil {
		return err
	}
	if err := inner.RouteAdd(&netlink.Route{LinkIndex: eth.Attrs().Index, Gw: w.first}); err != nil {
		return err
	}
	return netlink.RouteReplace(&netlink.Route{LinkIndex: w.bridge.Attrs().Index, Dst: behind, Gw: address})
}
