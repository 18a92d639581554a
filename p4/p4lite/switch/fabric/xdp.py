"""Why an interface cannot be used by AF_XDP, and what to do about it, by the step that failed (`core/fabric/xdp.c`)."""

from __future__ import annotations

import errno
import os

#: Bytes that a packet has at most: a page of the kernel without its headroom, Ethernet and a VLAN tag.
MAX_MTU = os.sysconf("SC_PAGE_SIZE") - 256 - 18
_RIGHTS = (
    "this needs CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF of the machine itself, not of a user namespace; run as the "
    "machine's root"
)


def no_xdp(step: str, code: int, interface: str) -> str:
    """Return what a step lacked, and the remedy.

    Args:
        step: the name of a PF_E_XDP_* code in lower case.
        code: errno; 0 where the step has none.
        interface: its name.
    """
    if step == "xdp_mtu":
        return f"its MTU is too large; set it to at most {MAX_MTU} (ip link set {interface} mtu {MAX_MTU})"
    if step == "xdp_queues":
        return f"it has several receive queues and a port reads one; ethtool -L {interface} combined 1"
    if code in (errno.EPERM, errno.EACCES):
        return _RIGHTS
    known = {
        ("xdp_socket", errno.EAFNOSUPPORT): "this kernel has no such sockets (CONFIG_XDP_SOCKETS)",
        ("xdp_memory", errno.ENOBUFS): "the limit of locked memory is too low; raise it (ulimit -l unlimited)",
        ("xdp_memory", errno.ENOPROTOOPT): "this kernel is older than Linux 5.4",
        ("xdp_program", errno.ENOSYS): "this kernel has no bpf(2) (CONFIG_BPF_SYSCALL)",
        ("xdp_program", errno.EINVAL): "this kernel knows no XDP sockets in its maps (Linux 4.18, CONFIG_XDP_SOCKETS)",
        ("xdp_bind", errno.EBUSY): "another AF_XDP socket uses the interface; end its process",
        ("xdp_attach", errno.EBUSY): f"another XDP program is on it; remove it (ip link set {interface} xdp off)",
        ("xdp_attach", errno.EINVAL): "this kernel ties no XDP program to a process (Linux 5.9)",
    }
    what = {
        "xdp_socket": "no socket",
        "xdp_memory": "no memory shared with the kernel",
        "xdp_program": "the XDP program cannot be loaded",
        "xdp_bind": "the socket cannot be bound to it",
        "xdp_attach": "the XDP program cannot be attached to it",
    }[step]
    return known.get((step, code), f"{what}: {os.strerror(code)}")
