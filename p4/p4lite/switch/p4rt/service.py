"""The P4Runtime service on gRPC: many devices behind one server, and bounds on what a client may take of it.

Requests are parsed by our own deserialisers, so that bytes which are no message of the right type are refused
with INVALID_ARGUMENT and a reason. Streams are threads; what is sent to a controller waits in a bounded queue.
No client can hold every thread by not saying, or not reading, what it should (`patience`).
"""

from __future__ import annotations

import ctypes
import gc
import itertools
import logging
import math
import queue
import select
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from p4lite.messages import p4runtime_pb2
from p4lite.switch.fabric.fabric import Fabric, FabricSwitch
from p4lite.switch.p4rt.device import Device, ReadErrors
from p4lite.switch.p4rt.errors import (
    CANCELLED,
    DEADLINE_EXCEEDED,
    FAILED_PRECONDITION,
    INTERNAL,
    NOT_FOUND,
    RESOURCE_EXHAUSTED,
    UNAVAILABLE,
    P4RtError,
    abort,
    abort_batch,
    invalid,
)
from p4lite.switch.p4rt.pipeline import PipelineCache

#: Calls other than streams that are worked on at once.
THREADS = 64
#: The threads that write the answers of Reads, whose duration depends on the clients.
READ_THREADS = 64
MAX_STREAMS = 1024
#: At most this many streams may be open that have not arbitrated, and for this long.
SILENT_STREAMS, SILENT_S = 640, 10.0
#: At most this many calls may be open whose request has not come, and for this long.
UNSENT_CALLS, UNSENT_S = 32, 10.0
#: At most this many Reads may be open whose client takes nothing, and for this long.
UNREAD_CALLS, UNREAD_S = 48, 30.0
#: The limit of simultaneous calls on one connection, announced by HTTP/2; the client queues the rest.
MIN_CALLS_PER_CONNECTION, CALLS_PER_DEVICE = 256, 4


class Waiting:
    """Calls that wait for their client. Another thread may end each of them by a function.

    `most` and `seconds` (of the machine's clock) may be infinite, for a simulation whose only clients are in its own
    process: a busy machine must not change its result.
    """

    def __init__(self, most: float, seconds: float) -> None:
        self.most, self.seconds = most, seconds
        self._lock = threading.Lock()
        self._tokens = itertools.count()
        #: In the order in which they began to wait: (since, how to end it).
        self._calls: dict[int, tuple[float, Callable[[], Any]]] = {}

    def add(self, end: Callable[[], Any]) -> int:
        """Watch a call that begins to wait; return the token for `remove`. May end another call."""
        with self._lock:
            token = next(self._tokens)
            self._calls[token] = (time.monotonic(), end)
            oldest = self._calls.pop(next(iter(self._calls)))[1] if len(self._calls) > self.most else None
        if oldest is not None:
            oldest()
        return token

    def remove(self, token: int) -> None:
        """Stop watching a call."""
        with self._lock:
            self._calls.pop(token, None)

    @contextmanager
    def wait(self, end: Callable[[], Any]) -> Iterator[None]:
        """Watch the call that waits within this context; `end` ends it."""
        token = self.add(end)
        try:
            yield
        finally:
            self.remove(token)

    def expire(self) -> None:
        """End the calls whose time is over."""
        now = time.monotonic()
        with self._lock:
            over = [token for token, (since, _) in self._calls.items() if now - since > self.seconds]
            ends = [self._calls.pop(token)[1] for token in over]
        for end in ends:
            end()

    def __len__(self) -> int:
        return len(self._calls)


class StreamThreads(ThreadPoolExecutor):
    """A thread for each stream, which ends with it. Beyond the limit a few threads refuse the streams."""

    def __init__(self, most: int = MAX_STREAMS + 64) -> None:
        super().__init__(4, thread_name_prefix="p4rt-refuse")
        self._most = most
        self._count = 0
        self._count_lock = threading.Lock()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run a call in a thread of its own, or beyond the limit in one of the few refusing threads."""
        with self._count_lock:
            full = self._count >= self._most
            self._count += not full
        if full:
            return super().submit(fn, *args, **kwargs)
        future: Future[Any] = Future()

        def run() -> None:
            # gRPC needs the time of the end, not the result.
            try:
                fn(*args, **kwargs)
            finally:
                with self._count_lock:
                    self._count -= 1
                future.set_result(None)

        threading.Thread(target=run, name="p4rt-stream-out", daemon=True).start()
        return future


API_VERSION = "1.4.1"
SERVICE = "p4.v1.P4Runtime"
#: The limit of packets, digests and notifications that wait for a slow controller.
STREAM_LIMIT = 8192
#: Clean up after this many streams have ended, and no sooner than this long after the last time.
TIDY_STREAMS, TIDY_S = 50, 2.0
log = logging.getLogger("p4lite.p4rt")
_libc = ctypes.CDLL(None)


class Malformed:
    """The result of a deserialiser for bytes that are not a message of its type."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


def _parser(message_type: Any) -> Callable[[bytes], Any]:
    """Return the deserialiser of a message type, which returns Malformed for invalid bytes."""

    def parse(data: bytes) -> Any:
        try:
            return message_type.FromString(data)
        # The pure-Python runtime lets several kinds of error escape on malformed bytes.
        except (DecodeError, ValueError, IndexError, TypeError, RecursionError) as error:
            return Malformed(f"the request is no {message_type.DESCRIPTOR.full_name}: {error}")

    return parse


class Stream:
    """The server's end of one StreamChannel (an `arbitration.Client`)."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.error: P4RtError | None = None
        self.device: Device | None = None
        #: Among the streams that have not arbitrated.
        self.silent = -1

    def send(self, message: Any) -> None:
        """Queue a message."""
        self._queue.put(message)

    def offer(self, message: Any) -> bool:
        """Queue a message; return False if the controller is too slow to take those that wait."""
        if self._queue.qsize() >= STREAM_LIMIT:
            return False
        self._queue.put(message)
        return True

    def close(self, error: P4RtError | None = None) -> None:
        """End the stream once all queued messages are sent; `error` becomes its status."""
        if self.error is None:
            self.error = error
        self._queue.put(None)

    def messages(self) -> Iterator[Any]:
        """Yield the messages to send, until the end."""
        while True:
            message = self._queue.get()
            if message is None:
                return
            yield message


class P4RuntimeService:
    """The devices of a fabric, the RPCs on them, and the thread that forwards the fabric's notifications."""

    def __init__(self, fabric: Fabric, *, patient: bool = False) -> None:
        """Create the service; `patient`: all clients are of this process, and no slow one is ended (`Waiting`)."""
        self.fabric = fabric
        self.cache = PipelineCache()
        self._devices: dict[int, Device] = {}
        self._streams: set[Stream] = set()
        self._lock = threading.Lock()
        #: Held while a program comes or goes, and while the fabric's notifications look into programs.
        self.programs = threading.RLock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        #: The tasks of about once a second.
        self.chores: list[Callable[[], None]] = [self._expire, self._free_ended_streams]
        self._streams_ended = 0
        self._tidied_at = 0.0
        self.silent = Waiting(*((math.inf, math.inf) if patient else (SILENT_STREAMS, SILENT_S)))
        self.unsent = Waiting(*((math.inf, math.inf) if patient else (UNSENT_CALLS, UNSENT_S)))
        self.unread = Waiting(*((math.inf, math.inf) if patient else (UNREAD_CALLS, UNREAD_S)))
        self.readers = ThreadPoolExecutor(READ_THREADS, thread_name_prefix="p4rt-read")
        self._stream_threads = StreamThreads()

    # -- devices -----------------------------------------------------------------------------------------

    def add_device(self, switch: FabricSwitch) -> Device:
        """Serve a switch of the fabric under its device_id."""
        device = Device(switch, self.cache, self.programs)
        with self._lock:
            self._devices[switch.device_id] = device
        return device

    def remove_device(self, device_id: int) -> None:
        """Stop serving a switch; its controllers' streams end."""
        with self._lock:
            device = self._devices.pop(device_id, None)
        if device is not None:
            self.end_streams(device, P4RtError(UNAVAILABLE, f"device {device_id} was removed"))

    def device(self, device_id: int) -> Device:
        """Return the device. Raises NOT_FOUND, which names those that exist."""
        with self._lock:
            device = self._devices.get(device_id)
            if device is None:
                known = ", ".join(map(str, self._devices)) or "none"
                raise P4RtError(NOT_FOUND, f"there is no device {device_id}; known: {known}")
            return device

    def devices(self) -> list[Device]:
        """Return all devices, in the order in which they were added."""
        with self._lock:
            return list(self._devices.values())

    def end_streams(self, device: Device | None, error: P4RtError) -> None:
        """End the streams of a device (None: of all) with a status."""
        with self._lock:
            chosen = [stream for stream in self._streams if device is None or stream.device is device]
        for stream in chosen:
            stream.close(error)

    # -- notifications -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Start to forward packet-ins, digests and idle timeouts."""
        self._thread = threading.Thread(target=self._notify, name="p4rt-notify", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End every stream and the notification thread."""
        self.end_streams(None, P4RtError(UNAVAILABLE, "the server is shutting down"))
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self.readers.shutdown(wait=False)
        self._stream_threads.shutdown(wait=False)

    def _notify(self) -> None:
        wait = 0.1
        chores_at = 0.0
        while not self._stop.is_set():
            if time.monotonic() >= chores_at:
                self._run_periodic_tasks()
                chores_at = time.monotonic() + 1.0
            select.select([self.fabric.notify_fd], [], [], wait)
            by_device: dict[int, list[Any]] = {}
            with self.programs:
                notes_taken = self.fabric.notifications()
            for note in notes_taken:
                by_device.setdefault(note.device_id, []).append(note)
            now = time.monotonic_ns()
            wait = 0.1
            for device in self.devices():
                try:
                    notes = by_device.get(device.device_id)
                    if notes:
                        device.notify(notes)
                    due = device.digests_due(now)
                except Exception:
                    log.exception("device %d: a notification was lost", device.device_id)
                    continue
                if due is not None:
                    wait = min(wait, max((due - time.monotonic_ns()) / 1e9, 0.0005))

    def _run_periodic_tasks(self) -> None:
        for chore in self.chores:
            try:
                chore()
            except Exception:
                log.exception("a regular task failed")

    def _expire(self) -> None:
        for waiting in (self.silent, self.unsent, self.unread):
            waiting.expire()

    def _free_ended_streams(self) -> None:
        """Release the memory of streams that ended.

        An RPC leaves a cycle of objects that refer to each other, about 25 KB for a stream. The collector, tuned for
        large Writes, runs only after 200 000 objects, and the C library keeps what it frees.
        """
        if self._streams_ended < TIDY_STREAMS or time.monotonic() - self._tidied_at < TIDY_S:
            return
        self._streams_ended = 0
        gc.collect()
        _libc.malloc_trim(0)
        self._tidied_at = time.monotonic()

    # -- RPCs --------------------------------------------------------------------------------------------

    def handler(self) -> grpc.GenericRpcHandler[Any, Any]:
        """Return the service's methods, to be added to a grpc.Server."""
        pb = p4runtime_pb2

        def unary(call: Callable[[Any], Any], request: Any, response: Any) -> grpc.RpcMethodHandler[Any, Any]:
            return self.one_to_one(
                lambda message, context: self.guard(context, call, message),
                _parser(request),
                response.SerializeToString,
            )

        methods = {
            "Capabilities": unary(self._capabilities, pb.CapabilitiesRequest, pb.CapabilitiesResponse),
            "SetForwardingPipelineConfig": unary(
                self._set_pipeline, pb.SetForwardingPipelineConfigRequest, pb.SetForwardingPipelineConfigResponse
            ),
            "GetForwardingPipelineConfig": unary(
                lambda request: self.device(request.device_id).get_pipeline(request),
                pb.GetForwardingPipelineConfigRequest,
                pb.GetForwardingPipelineConfigResponse,
            ),
            "Write": self.one_to_one(self._write, _parser(pb.WriteRequest), pb.WriteResponse.SerializeToString),
            "Read": grpc.stream_stream_rpc_method_handler(
                _on(self.readers, self._read_call),
                request_deserializer=_parser(pb.ReadRequest),
                response_serializer=bytes,
            ),
            "StreamChannel": grpc.stream_stream_rpc_method_handler(
                _on(self._stream_threads, self._stream_channel),
                request_deserializer=_parser(pb.StreamMessageRequest),
                response_serializer=pb.StreamMessageResponse.SerializeToString,
            ),
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    def one_to_one(
        self, call: Callable[[Any, Any], Any], read: Callable[[bytes], Any], write: Callable[[Any], bytes]
    ) -> grpc.RpcMethodHandler[Any, Any]:
        """Return the handler of a method with one request and one response.

        gRPC's own handler keeps a thread for ever for a call whose request never comes; this one waits within bounds.
        The messages on the wire are the same.
        """

        def answer(requests: Iterator[Any], context: Any) -> Iterator[Any]:
            yield call(self._request(requests, context), context)

        return grpc.stream_stream_rpc_method_handler(answer, request_deserializer=read, response_serializer=write)

    def _request(self, requests: Iterator[Any], context: Any) -> Any:
        with self.unsent.wait(context.cancel):
            for request in requests:
                return request
        return abort(context, P4RtError(CANCELLED, "the call has no request"))

    def _read_call(self, requests: Iterator[Any], context: Any) -> Iterator[Any]:
        for response in self._read(self._request(requests, context), context):
            with self.unread.wait(context.cancel):
                yield response

    def guard(self, context: Any, call: Callable[[Any], Any], request: Any) -> Any:
        """Run a call; a refusal becomes the RPC's status, any other error INTERNAL."""
        try:
            _check(request)
            return call(request)
        except P4RtError as error:
            failure = error.kept()
        except Exception as error:
            log.exception("a request failed")
            failure = P4RtError(INTERNAL, f"{type(error).__name__}: {error}")
        return abort(context, failure)

    def _capabilities(self, request: Any) -> Any:
        del request  # has no fields in this version of the API
        return p4runtime_pb2.CapabilitiesResponse(p4runtime_api_version=API_VERSION)

    def _set_pipeline(self, request: Any) -> Any:
        self.device(request.device_id).set_pipeline(request)
        return p4runtime_pb2.SetForwardingPipelineConfigResponse()

    def _write(self, request: Any, context: Any) -> Any:
        errors = self.guard(context, lambda message: self.device(message.device_id).write(message), request)
        if any(error is not None for error in errors):
            abort_batch(context, errors, "Write")
        return p4runtime_pb2.WriteResponse()

    def _read(self, request: Any, context: Any) -> Iterator[Any]:
        try:
            _check(request)
            yield from self.device(request.device_id).read(request)
            return
        except ReadErrors as error:
            errors: list[P4RtError | None] = error.errors
        except P4RtError as error:
            abort(context, error)
        except Exception as error:
            log.exception("a read failed")
            abort(context, P4RtError(INTERNAL, f"{type(error).__name__}: {error}"))
        abort_batch(context, errors, "Read")

    # -- streams -----------------------------------------------------------------------------------------

    def _stream_channel(self, requests: Iterator[Any], context: Any) -> Iterator[Any]:
        stream = Stream()
        with self._lock:
            full = len(self._streams) >= MAX_STREAMS
            if not full:
                self._streams.add(stream)
        if full:
            abort(context, P4RtError(RESOURCE_EXHAUSTED, f"{MAX_STREAMS} streams are open"))
        stream.silent = self.silent.add(lambda: stream.close(_SILENT))
        if not context.add_callback(stream.close):
            stream.close()
        reader = threading.Thread(target=self._read_stream, args=(stream, requests), name="p4rt-stream", daemon=True)
        reader.start()
        try:
            yield from stream.messages()
        finally:
            with self._lock:
                self._streams.discard(stream)
                self._streams_ended += 1
            self.silent.remove(stream.silent)
            if stream.device is not None:
                with stream.device.lock:
                    stream.device.arbiter.remove(stream)
        if stream.error is not None:
            abort(context, stream.error)

    def _read_stream(self, stream: Stream, requests: Iterator[Any]) -> None:
        failure: P4RtError | None = None
        try:
            for message in requests:
                _check(message)
                self._stream_message(stream, message)
        except P4RtError as error:
            failure = error.kept()
        except grpc.RpcError:
            log.debug("a controller's stream broke")
        except Exception as error:
            log.exception("a stream failed")
            failure = P4RtError(INTERNAL, f"{type(error).__name__}: {error}")
        stream.close(failure)

    def _stream_message(self, stream: Stream, message: Any) -> None:
        if message.WhichOneof("update") == "arbitration":
            device = stream.device or self.device(message.arbitration.device_id)
            with device.lock:
                device.arbiter.update(stream, message.arbitration)
                stream.device = device
            self.silent.remove(stream.silent)
            return
        if stream.device is None:
            raise P4RtError(FAILED_PRECONDITION, "the first message of a stream must be a MasterArbitrationUpdate")
        stream.device.stream_message(stream, message)


_SILENT = P4RtError(
    DEADLINE_EXCEEDED, f"no arbitration within {SILENT_S:g} s, or too many streams without; arbitrate first"
)


def _on(pool: ThreadPoolExecutor, call: Callable[[Iterator[Any], Any], Iterator[Any]]) -> Any:
    """Return `call` as a behaviour that gRPC runs in a pool of its own."""

    def behaviour(requests: Iterator[Any], context: Any) -> Iterator[Any]:
        return call(requests, context)

    behaviour.experimental_thread_pool = pool  # type: ignore[attr-defined]
    return behaviour


def _check(request: Any) -> None:
    if isinstance(request, Malformed):
        raise invalid(request.reason)
