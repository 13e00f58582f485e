"""The C library's heap in a server that lives for weeks: what is freed goes back to the system.

glibc raises the size from which blocks are mapped on their own with every such block that is freed,
up to 32 MiB. From then on pixels and keys and values of requests lie between whatever else is
allocated, in up to eight arenas a core, and what a busy minute took is never given back.
"""

from __future__ import annotations

import ctypes
import os
import platform
import threading
from collections.abc import Iterator
from contextlib import contextmanager

ARENAS, MAPPED, RETAINED = 2, 4 << 20, 16 << 20
"""Arenas of all threads; bytes from which a block is mapped on its own, and given back when it is
freed; bytes at the end of the heap that are not given back."""
_TRIM, _MAP, _ARENA_MAX = -1, -3, -8  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX of malloc.h


TRIM_SECONDS = 20.0
"""Between two trims: what a burst took is given back soon, and a trim costs some milliseconds."""


def bound_heap() -> bool:
    """Bound what the heap of this process holds beyond what is in use; before threads begin.

    Returns:
        Whether it did: not where another allocator is, nor where `MALLOC_...` or `GLIBC_TUNABLES`
        of the environment say how glibc's is to be.
    """
    if not _is_ours():
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return all([mallopt(_ARENA_MAX, ARENAS), mallopt(_MAP, MAPPED), mallopt(_TRIM, RETAINED)])


@contextmanager
def trimming_heap(seconds: float = TRIM_SECONDS) -> Iterator[None]:
    """Give free pages between blocks in use back to the system now and then, until it ends.

    What requests leave in between is less than a mapped block, but much of it: pages of keys and
    values, pictures, states of a prefill.
    """
    if not _is_ours():
        yield
        return
    trim, is_over = ctypes.CDLL(None).malloc_trim, threading.Event()

    def keep_trimming() -> None:
        while not is_over.wait(seconds):
            trim(0)  # without the GIL; each arena is locked while it is looked through

    thread = threading.Thread(target=keep_trimming, name="sooner-heap", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _is_ours() -> bool:
    is_set = any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in os.environ)
    return not is_set and platform.libc_ver()[0] == "glibc"
