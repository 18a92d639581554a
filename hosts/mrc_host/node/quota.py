"""Limits of what programs may take of a host, and the error of a request that is refused."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import Final

from mrc_host.proto.limits import check_range
from mrc_topo.base import rpc

#: What a work request takes at most, bytes, as `ibv_port_attr.max_msg_sz`.
MAX_MESSAGE_BYTES: Final = 1 << 31


@dataclass(frozen=True)
class Limits:
    """The limits of each program, except `programs`, which is the host's.

    `memory` is in bytes, with all rings; `work_requests` and `completions` are of one queue.
    """

    programs: int = 16
    memory: int = 1 << 30
    regions: int = 1024
    queue_pairs: int = 1024
    completion_queues: int = 256
    completions: int = 1 << 16
    work_requests: int = 4096
    submissions: int = 4096

    def __post_init__(self) -> None:
        check_range("verbs.programs", self.programs, 0, 1024)
        check_range("verbs.memory", self.memory, 1 << 20, 1 << 44)
        check_range("verbs.regions", self.regions, 1, 1 << 20)
        check_range("verbs.queue_pairs", self.queue_pairs, 1, 1 << 16)
        check_range("verbs.completion_queues", self.completion_queues, 1, 1 << 16)
        check_range("verbs.completions", self.completions, 1, 1 << 22)
        check_range("verbs.work_requests", self.work_requests, 1, 1 << 16)
        check_range("verbs.submissions", self.submissions, 16, 1 << 16)


class RefusedError(rpc.RefusedError):
    """A request that is not carried out; `number` is an errno."""

    def __init__(self, number: int, text: str) -> None:
        super().__init__(text, number)


def wanted(name: str, value: int, limit: int, key: str, number: int = errno.ENOMEM) -> None:
    """Check how many objects a program would have against a limit.

    Raises:
        RefusedError: they are too many, with the errno `number`; the text names the key of the configuration.
    """
    if value > limit:
        raise RefusedError(number, f"{value} {name}; this host allows {limit} (`agents.verbs.{key}`)")


def sized(name: str, value: int, limit: int, key: str) -> None:
    """Check the size of one object against what the device's attributes tell: beyond it no device of this kind goes.

    Raises:
        RefusedError: it is too large (EINVAL, as the kernel's drivers answer); the text names the key.
    """
    wanted(name, value, limit, key, errno.EINVAL)
