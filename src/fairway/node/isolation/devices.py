"""Devices that a cgroup of version 2 may not open, under whatever name: a program of the kernel's BPF, attached to it.

Version 2 has no file for this; the kernel runs the programs of a cgroup at each opening of a device. Ours compares type
and numbers with those that are forbidden, and allows all else. It goes with the cgroup.
"""

import ctypes
import os
import platform
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path

SYSCALL = {"x86_64": 321, "aarch64": 280}
LOAD, ATTACH, SORT, AT_DEVICE, MULTI = 5, 8, 15, 6, 2
CHARACTER, READ_OR_WRITE = 2, 6
LOAD_WORD, AND, SHIFT, SET, UNLESS, IF, EXIT = 0x61, 0x57, 0x77, 0xB7, 0x55, 0x15, 0x95
"""Opcodes: r = *(u32 *)(base + offset), r &= n, r >>= n, r = n, jump if r != n, jump if r == n, return r0."""
LICENSE = b"Apache-2.0\0"
ATTRIBUTES = 128  # bytes, of which the kernel reads what it knows


def forbid(cgroup: Path, numbers: Iterable[tuple[int, int]]) -> None:
    """Closes these character devices, by major and minor number, to all processes of a cgroup; OSError if it cannot."""
    program = _program(tuple(numbers))
    code, license_text = ctypes.create_string_buffer(program), ctypes.create_string_buffer(LICENSE)
    count = len(program) // 8
    loaded = _bpf(LOAD, struct.pack("IIQQ", SORT, count, ctypes.addressof(code), ctypes.addressof(license_text)))
    folder = os.open(cgroup, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _bpf(ATTACH, struct.pack("IIII", folder, loaded, AT_DEVICE, MULTI))
    finally:
        os.close(folder)
        os.close(loaded)


def _program(numbers: Sequence[tuple[int, int]]) -> bytes:
    """Reads what is asked (access in the upper half of the first word, type in the lower), then compares."""
    head = [_step(LOAD_WORD, 2, 1, 0), _step(LOAD_WORD, 3, 1, 4), _step(LOAD_WORD, 4, 1, 8),
            _step(LOAD_WORD, 5, 1, 0), _step(SHIFT, 5, number=16), _step(AND, 5, number=READ_OR_WRITE),
            _step(AND, 2, number=0xFFFF)]  # fmt: skip
    each = [[_step(UNLESS, 2, offset=5, number=CHARACTER), _step(IF, 5, offset=4, number=0),
             _step(UNLESS, 3, offset=3, number=major), _step(UNLESS, 4, offset=2, number=minor),
             _step(SET, 0, number=0), _step(EXIT, 0)] for major, minor in numbers]  # fmt: skip
    return b"".join([*head, *(step for steps in each for step in steps), _step(SET, 0, number=1), _step(EXIT, 0)])


def _step(code: int, to: int, base: int = 0, offset: int = 0, number: int = 0) -> bytes:
    return struct.pack("<BBhi", code, to | base << 4, offset, number)


def _bpf(command: int, attributes: bytes) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    held = ctypes.create_string_buffer(attributes, ATTRIBUTES)
    number = SYSCALL.get(platform.machine())
    answer = libc.syscall(number, command, held, ATTRIBUTES) if number else -1
    if answer < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"devices cannot be closed by BPF: {os.strerror(error)}")
    return int(answer)
