"""The C library's heap in a server that lives for weeks: what is freed goes back to the system.

glibc raises the size from which blocks are mapped on their own with every such block that is freed,
up to 32 MiB. From then on pixels and keys and values of requests lie between whatever else is
allocated, in up to eight arenas a core, and what a busy minute took is never given back.
"""

from __future__ import annotations

import ctypes
import os
import platform

ARENAS, MAPPED, KEPT = 2, 4 << 20, 16 << 20
"""Arenas of all threads; bytes from which a block is mapped on its own, and given back when it is
freed; bytes at the end of the heap that are not given back."""
_TRIM, _MAP, _MOST = -1, -3, -8  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX of malloc.h


def bound_heap() -> bool:
    """Bound what the heap of this process holds beyond what is in use; before threads begin.

    Returns:
        Whether it did: not where another allocator is, nor where `MALLOC_...` or `GLIBC_TUNABLES`
        of the environment say how glibc's is to be.
    """
    told = any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in os.environ)
    if told or platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return all([mallopt(_MOST, ARENAS), mallopt(_MAP, MAPPED), mallopt(_TRIM, KEPT)])
