"""What a server frees goes back to the system, in a process of its own."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library"),
]

SCRIPT = """
import ctypes, sys
from sooner.serve.heap import bound_heap

class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "abcdmfghij"]  # m: bytes mapped on their own

bounded = bound_heap() if sys.argv[1] == "bounded" else None
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.mallinfo2.restype = ctypes.c_void_p, Info
libc.free.argtypes = [ctypes.c_void_p]
libc.free(libc.malloc(30 << 20))  # after which glibc maps no block of less on its own
before = libc.mallinfo2().m
libc.malloc(8 << 20)
print(bounded, libc.mallinfo2().m - before >> 20)
"""


def report(*arguments: str, **more: str) -> list[str]:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")
    }
    environment.pop("GLIBC_TUNABLES", None)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments],
        env={**environment, **more}, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return done.stdout.split()


def test_large_blocks_are_mapped_apart_whatever_was_freed_before() -> None:
    assert report("usual") == ["None", "0"]
    assert report("bounded") == ["True", "8"]


HOLES = """
import ctypes, os, time
from sooner.serve.heap import trimming_heap

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
before = resident()
blocks = [libc.malloc(100_000) for _ in range(2_000)]
for block in blocks:
    libc.memset(block, 1, 100_000)
for number, block in enumerate(blocks):
    if number % 20:
        libc.free(block)
kept = resident() - before
with trimming_heap(0.05):
    time.sleep(0.5)
print(kept, resident() - before)
"""


def test_what_was_freed_between_blocks_in_use_goes_back() -> None:
    done = subprocess.run([sys.executable, "-c", HOLES], check=True, capture_output=True, text=True)
    resident, left = map(int, done.stdout.split())
    assert resident > 150
    assert left < resident / 3
