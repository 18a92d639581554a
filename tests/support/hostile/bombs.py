"""Archives and files that would take all memory of a reader that believes their sizes, made in a moment."""

from __future__ import annotations

import gzip
import pathlib
import struct
import zlib
from collections.abc import Mapping

#: The size of what is in a bomb, and of the piece that is repeated in it.
SIZE, PIECE = 3 << 30, 16 << 20


def deflated(size: int = SIZE) -> bytes:
    """Return a deflate stream of blanks, made of one piece that is repeated."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    piece = packer.compress(b" " * PIECE) + packer.flush(zlib.Z_FULL_FLUSH)
    return piece * (size // PIECE) + zlib.compressobj(9, zlib.DEFLATED, -15).flush()


def gzipped(size: int = SIZE) -> bytes:
    """Return a gzip file of one line of blanks."""
    return gzip.compress(b" " * PIECE, 9) * (size // PIECE)


def archive(
    path: pathlib.Path, plain: Mapping[str, bytes], bomb: str, claimed: int, data: bytes, method: int = 8
) -> None:
    """Write a zip archive of `plain` members and one of packed `data`, whose headers claim a size."""
    body = directory = b""
    members = [(name, zlib.crc32(content), content, len(content), 0) for name, content in plain.items()]
    members.append((bomb, 0, data, claimed, method))
    for name, crc, content, size, kind in members:
        common = struct.pack("<HHHHHIIIHH", 20, 0, kind, 0, 33, crc, len(content), size, len(name), 0)
        directory += b"PK\1\2" + struct.pack("<H", 20) + common + struct.pack("<HHHII", 0, 0, 0, 0, len(body))
        directory += name.encode()
        body += b"PK\3\4" + common + name.encode() + content
    end = struct.pack("<HHHHIIH", 0, 0, len(members), len(members), len(directory), len(body), 0)
    path.write_bytes(body + directory + b"PK\5\6" + end)
