"""Kernels run on a GPU where there is one, else through Triton's interpreter.

The interpreter must be asked for before Triton is first imported, and would follow every later test
of the same process. So without a GPU the tests of kernels run in a process of their own, which
`test_interpreter.py` starts and reports on, unless `TRITON_INTERPRET=1` was set from outside.
"""

from __future__ import annotations

import os
from typing import Any

import torch

DIRECT = torch.cuda.is_available() or os.environ.get("TRITON_INTERPRET") == "1"
collect_ignore_glob = ["test_interpreter.py"] if DIRECT else ["test_kernel_*.py"]


def _call_inside_a_kernel(self: Any, *args: Any, **kwargs: Any) -> Any:
    """A device function's call, without patching Triton's language anew.

    The launch of the kernel has done so already. Each call doing it again is nine tenths of the
    time that these tests would take.
    """
    return self.rewrite()(*args, **kwargs)


if DIRECT and not torch.cuda.is_available():
    from triton.runtime.interpreter import InterpretedFunction

    InterpretedFunction.__call__ = _call_inside_a_kernel
