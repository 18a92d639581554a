"""P4Runtime's error reporting: canonical codes, and google.rpc.Status with one p4.v1.Error per update.

Source: P4Runtime specification, sections "Error Reporting Messages" and "Write RPC / Error Reporting".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import grpc

from p4lite.errors import P4liteError
from p4lite.messages import code_pb2, p4runtime_pb2, status_pb2

OK = code_pb2.OK
UNKNOWN = code_pb2.UNKNOWN
INVALID_ARGUMENT = code_pb2.INVALID_ARGUMENT
NOT_FOUND = code_pb2.NOT_FOUND
ALREADY_EXISTS = code_pb2.ALREADY_EXISTS
PERMISSION_DENIED = code_pb2.PERMISSION_DENIED
FAILED_PRECONDITION = code_pb2.FAILED_PRECONDITION
RESOURCE_EXHAUSTED = code_pb2.RESOURCE_EXHAUSTED
OUT_OF_RANGE = code_pb2.OUT_OF_RANGE
UNIMPLEMENTED = code_pb2.UNIMPLEMENTED
INTERNAL = code_pb2.INTERNAL
UNAVAILABLE = code_pb2.UNAVAILABLE
CANCELLED = code_pb2.CANCELLED
DEADLINE_EXCEEDED = code_pb2.DEADLINE_EXCEEDED

MAX_STATUS_BYTES = 8000
GRPC_CODES = {code.value[0]: code for code in grpc.StatusCode}


class P4RtError(P4liteError):
    """A refusal with a canonical code (google.rpc.Code) and a message for the developer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message

    def kept(self) -> P4RtError:
        """Return an equal error without a traceback, which can be stored after the handler that caught this one.

        A traceback refers to the frames of the call, and a frame to the error that it holds. In such a cycle gRPC's
        call lives until the garbage collector runs, and counts towards the calls that its connection may have at once.
        """
        return P4RtError(self.status, self.message)

    def __str__(self) -> str:
        return f"{code_pb2.Code.Name(self.status)}: {self.message}"


def invalid(message: str) -> P4RtError:
    """Return the error INVALID_ARGUMENT with `message`."""
    return P4RtError(INVALID_ARGUMENT, message)


def batch_status(errors: Sequence[P4RtError | None], what: str) -> status_pb2.Status:
    """Return the google.rpc.Status of a batch in which something failed: UNKNOWN, one p4.v1.Error per element.

    It travels in gRPC's metadata, of which clients take 8 to 16 KiB unless told otherwise, and refuse the whole
    answer beyond. So a large status loses its elements' texts first and then the elements; the first failure is
    always in the status's own message.
    """
    failed = sum(error is not None for error in errors)
    first = next(f"#{index}: {error}" for index, error in enumerate(errors) if error is not None)
    status = status_pb2.Status(code=UNKNOWN, message=f"{what}: {failed} of {len(errors)} failed; the first is {first}")
    for with_text in (True, False):
        del status.details[:]
        for error in errors:
            detail = p4runtime_pb2.Error()
            if error is not None:
                detail.canonical_code = error.status
                if with_text:
                    detail.message, detail.space = error.message, "p4lite"
            status.details.add().Pack(detail)
        if status.ByteSize() <= MAX_STATUS_BYTES:
            return status
    del status.details[:]
    status.message += " (too many for a status of each; make batches of 200 at most)"
    return status


def abort(context: Any, error: P4RtError) -> None:
    """End an RPC with the code of `error` (raises inside grpc)."""
    context.abort(GRPC_CODES[error.status], error.message)


def abort_batch(context: Any, errors: Sequence[P4RtError | None], what: str) -> None:
    """End an RPC with UNKNOWN and the status of every element in its trailing metadata."""
    status = batch_status(errors, what)
    context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    context.abort(grpc.StatusCode.UNKNOWN, status.message)
