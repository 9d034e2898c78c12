"""The blocks around files in a tar, as GNU tar writes them.

Not tarfile's, whose bytes need not be the same in each Python.
"""

from __future__ import annotations

BLOCK = 512
END = bytes(2 * BLOCK)


def header(name: str, size: int, time: int) -> bytes:
    """What stands before a file; a longer name has a member of its own."""
    long = name.encode()
    before = b""
    if len(long) > 100:
        before = _header(b"././@LongLink", len(long) + 1, 0, b"L") + long.ljust(padded(len(long) + 1), b"\0")
    return before + _header(long[:100], size, time, b"0")


def _header(name: bytes, size: int, time: int, kind: bytes) -> bytes:
    number = f"{size:011o}".encode() + b"\0" if size < 8**11 else b"\x80" + size.to_bytes(11, "big")
    fields = (
        *(name.ljust(100, b"\0"), b"0000644\0", b"0000000\0", b"0000000\0", number, f"{time:011o}".encode() + b"\0"),
        *(b" " * 8, kind, bytes(100), b"ustar  \0", b"root".ljust(32, b"\0"), b"root".ljust(32, b"\0")),
    )
    block = b"".join(fields).ljust(BLOCK, b"\0")
    return block[:148] + f"{sum(block):06o}".encode() + b"\0 " + block[156:]


def padded(size: int) -> int:
    return -(-size // BLOCK) * BLOCK


def padding(size: int) -> bytes:
    return bytes(padded(size) - size)
