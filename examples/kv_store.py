"""A key-value store replicated by one-sided writes: `kv_store.py FOLDER NAME NAME...`, this program's name first.

A node has room for the entries of all writers. A `put` writes the entry into the writer's part of each node's memory,
and is done when all have it; a `get` takes the newest in one's own. A checksum tells an entry that is being written
from a whole one. Commands by standard input: put KEY VALUE, get KEY, wait KEY VALUE (until get gives that), count.
"""

import struct
import sys
import time
import zlib

from mrc_host import verbs

SLOTS = 512
ENTRY = struct.Struct("=QIHH48s192s")  # version, checksum, length of key and of value, both
SLOT = ENTRY.size


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
        data = self.region.read(SLOT, (writer * SLOTS + slot) * SLOT)
        version, check, key_bytes, value_bytes, key, value = ENTRY.unpack(data)
        if not version or check != zlib.crc32(data[12:], version & 0xFFFFFFFF):
            return None
        return version, key[:key_bytes], value[:value_bytes]

    def find(self, writer: int, key: bytes) -> tuple[int, tuple[int, bytes, bytes] | None]:
        """Return the slot of a key in a writer's part, or the one where it would go; and its content."""
        for step in range(SLOTS):
            slot = (zlib.crc32(key) + step) % SLOTS
            found = self.entry(writer, slot)
            if found is None or found[1] == key:
                return slot, found
        raise SystemExit("the store is full")

    def get(self, key: bytes) -> bytes | None:
        """Return the newest value of a key over all writers."""
        found = [self.find(writer, key)[1] for writer in range(len(self.names))]
        return max((each for each in found if each is not None), default=(0, b"", None))[2]

    def put(self, key: bytes, value: bytes) -> None:
        """Write an entry to every host."""
        if len(key) > 48 or len(value) > 192:
            raise SystemExit("a key has at most 48 bytes, a value 192")
        self.version = max(self.version + 1, time.time_ns())
        body = struct.pack("=HH48s192s", len(key), len(value), key, value)
        check = zlib.crc32(body, self.version & 0xFFFFFFFF)
        offset = (self.own * SLOTS + self.find(self.own, key)[0]) * SLOT
        self.region.write(struct.pack("=QI", self.version, check) + body, offset)
        for qp, addr, rkey in self.peers:
            qp.post_write(self.region.sge(offset, SLOT), addr + offset, rkey)
        missing = len(self.peers)
        while missing:
            for done in self.cq.wait(60):
                if done.status is not verbs.WcStatus.SUCCESS:
                    raise SystemExit(f"a replica is gone: {verbs.status_text(done.status)}")
                missing -= 1


if __name__ == "__main__":
    if len(sys.argv) < 4:
        raise SystemExit(__doc__)
    with verbs.open_device() as device:
        store = Store(device, sys.argv[1], sys.argv[2], sys.argv[3:])
        print("ready", flush=True)
        for line in sys.stdin:
            answer = "ok"
            match line.strip().split(maxsplit=2):
                case ["put", name, text]:
                    store.put(name.encode(), text.encode())
                case ["get", name]:
                    answer = (store.get(name.encode()) or b"(nothing)").decode()
                case ["wait", name, text]:
                    while store.get(name.encode()) != text.encode():
                        time.sleep(0.001)
                case ["count"]:
                    answer = str(sum(bool(store.entry(*divmod(at, SLOTS))) for at in range(len(store.names) * SLOTS)))
                case _:
                    answer = "put KEY VALUE, get KEY, wait KEY VALUE, or count"
            print(answer, flush=True)
