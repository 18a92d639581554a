"""A key-value store replicated by one-sided writes: `kv_store.py FOLDER NAME NAME...`, this program's name first.

Every node has room for the entries of all writers. A `put` writes the entry into the writer's own part of each node's
memory, and is done when all have it; a `get` looks at one's own memory only, and takes the newest. A checksum tells an
entry that is being written from one that is whole. Commands come from the standard input: put KEY VALUE, get KEY,
wait KEY VALUE (until a get would give that), count.
"""

from __future__ import annotations

import struct
import sys
import time
import zlib

from mrc_host import verbs

SLOTS = 512
ENTRY = struct.Struct("=QIHH48s192s")  # version, checksum, length of key and of value, both
SLOT = 256


class Store:
    """This node's replica, and queue pairs to the others."""

    def __init__(self, context: verbs.Context, folder: str, own: str, others: list[str]) -> None:
        self.names = sorted([own, *others])
        self.own = self.names.index(own)
        self.version = 0
        domain = verbs.ProtectionDomain(context)
        self.cq = verbs.CompletionQueue(context, 256, verbs.CompletionChannel(context))
        self.region = verbs.MemoryRegion(domain, len(self.names) * SLOTS * SLOT)
        self.peers: list[tuple[verbs.QueuePair, int, int]] = []
        for other in sorted(others):
            qp = verbs.QueuePair(domain, self.cq)
            with verbs.Rendezvous.at(f"{folder}/{min(own, other)}-{max(own, other)}", 60) as meeting:
                theirs = meeting.exchange({"qp": qp.document(), "region": self.region.remote})
                qp.connect(theirs["qp"])
                meeting.exchange("connected")
            self.peers.append((qp, theirs["region"][0], theirs["region"][1]))

    def entry(self, writer: int, slot: int) -> tuple[int, bytes, bytes] | None:
        """Version, key and value of an entry; None when there is none, or not yet all of it."""
        at = (writer * SLOTS + slot) * SLOT
        data = bytes(self.region.buffer[at : at + ENTRY.size])
        version, check, key_bytes, value_bytes, key, value = ENTRY.unpack(data)
        if not version or check != zlib.crc32(data[12:], version & 0xFFFFFFFF):
            return None
        return version, key[:key_bytes], value[:value_bytes]

    def find(self, writer: int, key: bytes) -> tuple[int, tuple[int, bytes, bytes] | None]:
        """The slot of a key in a writer's part, or the one where it would go; and what is there."""
        first = zlib.crc32(key)
        for step in range(SLOTS):
            slot = (first + step) % SLOTS
            found = self.entry(writer, slot)
            if found is None or found[1] == key:
                return slot, found
        raise SystemExit("the store is full")

    def get(self, key: bytes) -> bytes | None:
        """The newest value of a key, of whichever writer."""
        found = [self.find(writer, key)[1] for writer in range(len(self.names))]
        newest = max((each for each in found if each is not None), default=None)
        return newest[2] if newest is not None else None

    def count(self) -> int:
        """Entries of all writers."""
        return sum(self.entry(w, s) is not None for w in range(len(self.names)) for s in range(SLOTS))

    def put(self, key: bytes, value: bytes) -> None:
        """Writes an entry everywhere."""
        if len(key) > 48 or len(value) > 192:
            raise SystemExit("a key has at most 48 bytes, a value 192")
        slot, _ = self.find(self.own, key)
        self.version = max(self.version + 1, time.time_ns())
        body = struct.pack("=HH48s192s", len(key), len(value), key, value)
        check = zlib.crc32(body, self.version & 0xFFFFFFFF)
        offset = (self.own * SLOTS + slot) * SLOT
        self.region.write(struct.pack("=QI", self.version, check) + body, offset)
        for qp, addr, rkey in self.peers:
            qp.post_write(self.region.sge(offset, SLOT), addr + offset, rkey)
        missing = len(self.peers)
        while missing:
            for done in self.cq.wait(60):
                if done.status is not verbs.WcStatus.SUCCESS:
                    raise SystemExit(f"a replica is gone: {verbs.status_text(done.status)}")
                missing -= 1


def main() -> None:
    """Reads commands, and answers each by a line."""
    if len(sys.argv) < 4:
        raise SystemExit(__doc__)
    with verbs.open_device() as context:
        store = Store(context, sys.argv[1], sys.argv[2], sys.argv[3:])
        print("ready", flush=True)
        for line in sys.stdin:
            match line.split(maxsplit=2):
                case ["put", key, value]:
                    store.put(key.encode(), value.strip().encode())
                    print("ok", flush=True)
                case ["get", key]:
                    print((store.get(key.encode()) or b"(nothing)").decode(), flush=True)
                case ["wait", key, value]:
                    while store.get(key.encode()) != value.strip().encode():
                        time.sleep(0.001)
                    print("ok", flush=True)
                case ["count"]:
                    print(
                        sum(store.entry(w, s) is not None for w in range(len(store.names)) for s in range(SLOTS)),
                        flush=True,
                    )
                case _:
                    print("put KEY VALUE, get KEY, wait KEY VALUE, or count", flush=True)


if __name__ == "__main__":
    main()
