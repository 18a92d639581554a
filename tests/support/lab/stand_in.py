"""Stand-ins for BMv2 and p4c.

The switch is started, asked and commanded like simple_switch_grpc, with p4lite's switch inside.

    python stand_in.py OPTIONS...    simple_switch_grpc's own

It serves P4Runtime at `--grpc-server-addr`; of Thrift it takes calls that set queues, and writes them to its output.
It stands for one with nanomsg, beside which another lab is up: the place in /tmp of its notifications is taken.
"""

from __future__ import annotations

import pathlib
import socket
import struct
import sys
import threading

VERSION = "1.15.0-stand-in"
#: The first lines of a program for Python, whose path may have spaces, which a line `#!` cannot have: Python takes the
#: shell's line for a string.
START = ("#!/bin/sh", f'\'\'\'exec\' "{sys.executable}" -P "$0" "$@"', "' '''")


def executable(folder: pathlib.Path, prelude: str = "") -> pathlib.Path:
    """Return a program in a folder that is this; `prelude` runs first."""
    path = folder / "simple_switch_grpc"
    here = pathlib.Path(__file__).resolve()
    lines = [
        *START,
        "import runpy, sys",
        prelude,
        f"runpy.run_path({str(here)!r}, run_name='__main__')",
    ]
    path.write_text("\n".join(lines) + "\n")
    path.chmod(0o755)
    return path


def p4c(folder: pathlib.Path) -> pathlib.Path:
    """Return a program in a folder that is called as p4c-bm2-ss and compiles with p4lite."""
    path = folder / "p4c-bm2-ss"
    lines = [
        *START,
        "import pathlib, sys",
        "from mrclab.lab.switches.program import fabric_program",
        "_, version, _, _, output, _, info, source = sys.argv",
        "made = fabric_program(pathlib.Path(source))",
        "pathlib.Path(output).write_bytes(made.bmv2)",
        "pathlib.Path(info).write_text(made.p4info)",
    ]
    path.write_text("\n".join(lines) + "\n")
    path.chmod(0o755)
    return path


def read_call(stream: socket.SocketIO) -> tuple[str, int, list[int]] | None:
    """One Thrift call of integers: method, number, arguments; None at the end."""

    def take(count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = stream.read(count - len(data))
            if not more:
                raise EOFError
            data += more
        return data

    try:
        version, length = struct.unpack(">II", take(8))
    except EOFError:
        return None
    assert version == 0x80010001
    name = take(length).decode()
    (number,) = struct.unpack(">I", take(4))
    arguments: list[str] = []
    while (kind := take(1)[0]) != 0:
        form = {8: ">i", 10: ">q"}[kind]
        assert struct.unpack(">H", take(2))[0] == len(arguments) + 1
        arguments.append(struct.unpack(form, take(struct.calcsize(form)))[0])
    return name, number, arguments  # type: ignore[return-value]


def answer(name: str, number: int, result: int | str) -> bytes:
    """Thrift's reply: an integer, or the text of an exception."""
    kind = 2 if isinstance(result, int) else 3
    head = struct.pack(">II", 0x80010000 | kind, len(name)) + name.encode() + struct.pack(">I", number)
    if isinstance(result, int):
        return head + struct.pack(">BHi", 8, 0, result) + b"\0"
    text = result.encode()
    return head + struct.pack(">BHI", 11, 1, len(text)) + text + struct.pack(">BHi", 8, 2, 1) + b"\0"


def serve_thrift(listener: socket.socket) -> None:
    """Answer one client after the other; as with BMv2 it knows its service a moment after it listens."""
    known = False
    while True:
        peer, _ = listener.accept()
        with peer, peer.makefile("rb", buffering=0) as stream:
            while (call := read_call(stream)) is not None:
                name, number, arguments = call
                if not known:
                    peer.sendall(answer(name, number, "Unknown service: simple_switch"))
                    known = True
                    continue
                print(name, *arguments, flush=True)
                peer.sendall(answer(name, number, 0))


def notifications(address: str) -> socket.socket:
    """Return the socket for notifications; what a dead one has left in its place goes, as with nanomsg."""
    path = pathlib.Path(address.removeprefix("ipc://"))
    if path.parent == pathlib.Path("/tmp"):
        sys.exit(f"Nanomsg returned a exception when trying to bind to address '{address}'.")
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    return listener


def main(words: list[str]) -> int:
    from p4lite.switch.server import FabricServer, serve_until_signal

    if words == ["--version"]:
        print(VERSION)
        return 0
    if words == ["--help"]:
        print("Options:\n  --thrift-port arg\n  --notifications-addr arg  the nanomsg address")
        return 0
    split = words.index("--")
    switch, target = words[:split], words[split + 1 :]
    assert switch[0] == "--no-p4"
    options = dict(zip(switch[1::2], switch[2::2], strict=True))
    ports = [each.split("@") for flag, each in zip(switch[1::2], switch[2::2], strict=True) if flag == "-i"]
    own = dict(zip(target[::2], target[1::2], strict=True))
    default = f"ipc:///tmp/bmv2-{options['--device-id']}-notifications.ipc"
    kept = notifications(options.get("--notifications-addr", default))
    listener = socket.create_server(("127.0.0.1", int(options["--thrift-port"])))
    threading.Thread(target=serve_thrift, args=(listener,), daemon=True).start()
    description = {
        "grpc_server_addr": own["--grpc-server-addr"],
        "switches": [
            {
                "device_id": int(options["--device-id"]),
                "priority_queues": int(own["--priority-queues"]),
                "ports": [{"port": int(number), "interface": name} for number, name in ports],
            }
        ],
    }
    with kept:
        return serve_until_signal(FabricServer.from_description(description), "stand_in")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
