"""The parts of an index file, for tests that change one of them."""

import json
import struct
import zlib
from pathlib import Path
from typing import Any

from cfe_faiss.files.layout import SINCE_VERSION


def parts_of(path: Path) -> tuple[bytearray, dict[str, Any]]:
    """Return what stands before the header of a file, and the header."""
    whole = path.read_bytes()
    start, length = struct.unpack("<QQ", whole[-24:-8])
    return bytearray(whole[:start]), json.loads(whole[start : start + length])


def write_parts(path: Path, body: bytearray, header: dict[str, Any]) -> None:
    encoded = json.dumps(header).encode()
    end = struct.pack("<QQI4s", len(body), len(encoded), zlib.crc32(encoded), b"CFE1")
    path.write_bytes(body + encoded + end)


def as_version(path: Path, version: int) -> None:
    """Convert a file to the format of an earlier version; version 2 is that of cfe_faiss 0.2."""

    def is_known(name: str) -> bool:
        return SINCE_VERSION.get(name, 0) <= version

    body, header = parts_of(path)
    header |= {"version": version}
    header["sections"] = [one for one in header["sections"] if is_known(one["name"])]
    header["parameters"] = {
        name: value for name, value in header["parameters"].items() if is_known(name)
    }
    write_parts(path, body, header)
