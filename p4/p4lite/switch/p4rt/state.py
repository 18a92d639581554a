"""Common state of the entity modules: the pipeline, the running instance, and the mapping of its refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from p4.v1 import p4runtime_pb2

from p4lite.switch import errors as program_errors
from p4lite.switch.fabric.values import CloneSession, FabricError, Replica
from p4lite.switch.p4rt.errors import (
    ALREADY_EXISTS,
    INTERNAL,
    INVALID_ARGUMENT,
    NOT_FOUND,
    OUT_OF_RANGE,
    PERMISSION_DENIED,
    RESOURCE_EXHAUSTED,
    P4RtError,
)
from p4lite.switch.p4rt.pipeline import Pipeline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from p4lite.switch.runtime.instance import ProgramInstance

INSERT = p4runtime_pb2.Update.INSERT
MODIFY = p4runtime_pb2.Update.MODIFY
DELETE = p4runtime_pb2.Update.DELETE

_CODES: dict[type[program_errors.ControlError], int] = {
    program_errors.NotFound: NOT_FOUND,
    program_errors.AlreadyExists: ALREADY_EXISTS,
    program_errors.InvalidArgument: INVALID_ARGUMENT,
    program_errors.OutOfRange: OUT_OF_RANGE,
    program_errors.ResourceExhausted: RESOURCE_EXHAUSTED,
    program_errors.PermissionDenied: PERMISSION_DENIED,
}


@contextmanager
def control() -> Iterator[None]:
    """Turn errors of the program or the fabric into P4RtError with the same meaning."""
    try:
        yield
    except program_errors.ControlError as error:
        raise P4RtError(_CODES.get(type(error), INTERNAL), str(error)) from None
    except FabricError as error:
        raise P4RtError(INVALID_ARGUMENT, str(error)) from None


class Replicator(Protocol):
    """The part of a switch that makes copies: `fabric.FabricSwitch`, or a stand-in while a pipeline is only saved."""

    def set_multicast_group(self, group: int, replicas: Sequence[Replica]) -> None:
        """Create or replace a group."""

    def delete_multicast_group(self, group: int) -> None:
        """Remove a group."""

    def set_clone_session(self, session: int, config: CloneSession) -> None:
        """Create or replace a clone session."""

    def delete_clone_session(self, session: int) -> None:
        """Remove a clone session."""


class NoReplicator:
    """Accepts everything without effect, for a pipeline that is saved but not committed."""

    def set_multicast_group(self, group: int, replicas: Sequence[Replica]) -> None:
        """Accept a multicast group without an effect."""

    def delete_multicast_group(self, group: int) -> None:
        """Accept the removal of a multicast group without an effect."""

    def set_clone_session(self, session: int, config: CloneSession) -> None:
        """Accept a clone session without an effect."""

    def delete_clone_session(self, session: int) -> None:
        """Accept the removal of a clone session without an effect."""


@dataclass(slots=True)
class DeviceTarget:
    """The target of a device's entities. `port_up` returns whether a port that a selector watches is up, None if there
    is no such port. `get_instance` returns the program's state with its clock brought up to date."""

    pipeline: Pipeline
    get_instance: Callable[[], ProgramInstance]
    replicator: Replicator
    port_up: Callable[[int], bool | None]

    @property
    def instance(self) -> ProgramInstance:
        """The program's tables and other state."""
        return self.get_instance()
