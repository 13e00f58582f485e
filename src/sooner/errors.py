"""Errors that name the thing, the value and the way out, in one line."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable


class SoonerError(ValueError):
    """Base of every error that `sooner` raises on purpose; the text is one line for a person."""


class UnsupportedError(SoonerError):
    """Something asked for can't be honoured, and is refused by name instead of being ignored."""


class FieldError(SoonerError):
    """A field of a request or an observation is missing or wrong.

    Attributes:
        field: its name, such as `image`, `instruction` or `unnorm_key`.
    """

    def __init__(self, field: str, text: str) -> None:
        super().__init__(text)
        self.field = field


class BadLogitsError(SoonerError):
    """The model returned NaN, so no next token can be chosen."""


class MemoryRanOutError(SoonerError):
    """Memory ran out; a smaller batch, prompt or picture may succeed."""


def reason_of(error: BaseException) -> str:
    """Returns what is wrong with a file or an object, in a line without its name."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    text = " ".join(str(error).split()) or type(error).__name__
    return re.sub(r"( file)?:? '[^']*/[^']*'$", "", text)[:300].rstrip(".")


OUT_OF_MEMORY = ("out of memory", "allocate memory", "not enough memory", "alloc_failed")
"""How torch, CUDA, MPS and the CPU's allocator say that memory ran out, in small letters."""

DEVICE_FAULTS = (
    "cuda error", "hip error", "device-side assert", "triton error", "illegal memory access",
    "illegal address", "cublas_status_", "cudnn_status_execution_failed", "nccl error",
    "device lost", "device_lost", "unspecified launch failure", "command buffer",
)  # fmt: skip
"""How accelerators say that they failed, in small letters."""

DEVICE_FAULT = 70
"""Exit status of a process whose accelerator failed (`EX_SOFTWARE`)."""


def is_out_of_memory(error: BaseException) -> bool:
    """Returns whether memory ran out, of the machine or of an accelerator; needs no torch."""
    if isinstance(error, MemoryError | MemoryRanOutError) or _is_called(error, "OutOfMemoryError"):
        return True
    return isinstance(error, RuntimeError) and _mentions(error, OUT_OF_MEMORY)


def is_device_fault(error: BaseException) -> bool:
    """Returns whether an accelerator failed, so that nothing more can be computed in this process.

    After a CUDA error such as a device-side assert every later call raises it again.
    """
    if is_out_of_memory(error):
        return False
    is_called = _is_called(error, "AcceleratorError")
    return is_called or (isinstance(error, RuntimeError) and _mentions(error, DEVICE_FAULTS))


def error_line(error: BaseException) -> str:
    """Returns an unexpected error in a line: its type, and the start of its message."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def _is_called(error: BaseException, name: str) -> bool:
    return any(kind.__name__ == name for kind in type(error).__mro__)


def _mentions(error: BaseException, signs: Iterable[str]) -> bool:
    text = str(error).lower()
    return any(sign in text for sign in signs)


def did_you_mean(value: str, known: Iterable[str]) -> str:
    """Return ` (did you mean 'x'?)` for the nearest known name, or an empty string."""
    nearest = difflib.get_close_matches(value, list(known), n=1)
    return f" (did you mean '{nearest[0]}'?)" if nearest else ""


def unknown(kind: str, value: str, known: Iterable[str]) -> SoonerError:
    """Build the error for a name that is not one of `known`."""
    names = sorted(known)
    return SoonerError(
        f"unknown {kind} '{value}'{did_you_mean(value, names)}; known: {', '.join(names)}"
    )
