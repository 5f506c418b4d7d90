"""Checksum of a file, computed in blocks."""

import math
import zlib
from typing import BinaryIO

_BLOCK = 1 << 24


def checksum(file: BinaryIO, start: int = 0, size: float = math.inf) -> int:
    """Return the CRC-32 of ``size`` bytes of a file from byte ``start``; by default up to the end."""
    file.seek(start)
    found = 0
    while size > 0 and (block := file.read(int(min(size, _BLOCK)))):
        found = zlib.crc32(block, found)
        size -= len(block)
    return found
