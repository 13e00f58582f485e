"""What is refused in one wording, and which errors mean memory or the device."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import pytest
import torch

from sooner.checks import (
    check_choice,
    check_fields,
    check_keys,
    check_number,
    check_whole,
    option,
)
from sooner.errors import MemoryRanOutError, SoonerError, is_device_fault, is_out_of_memory


@dataclass(frozen=True)
class Settings:
    window: int | Literal["auto"] = option("auto")
    frames: int | None = option(None, 1)
    port: int = option(80, 0, 99)
    share: float = option(0.5, 0, 1)
    rate: float | None = option(None, 0, above=True, hint="; None is any")
    mode: str = option("slow", known=("slow", "fast"))
    free: str = "text"

    def __post_init__(self) -> None:
        check_fields(self)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"window": 0}, "window is 0; it must be 'auto' or a whole number of 1 or more"),
        ({"window": "many"}, "window is 'many'; it must be 'auto' or a whole number of 1 or more"),
        ({"window": True}, "window is True; "),
        ({"frames": 0}, "frames is 0; it must be a whole number of 1 or more"),
        ({"frames": 4.0}, "frames is 4.0; it must be a whole number of 1 or more"),
        ({"port": None}, "port is None; it must be a whole number of 0 to 99"),
        ({"port": 100}, "port is 100; it must be a whole number of 0 to 99"),
        ({"share": 1.5}, "share is 1.5; it must lie in 0 to 1"),
        ({"share": math.nan}, "share is nan; it must lie in 0 to 1"),
        ({"rate": 0.0}, "rate is 0; it must be above 0; None is any"),
        ({"rate": math.inf}, "rate is inf; it must be above 0; None is any"),
        ({"mode": "fats"}, "unknown mode 'fats' (did you mean 'fast'?); known: fast, slow"),
    ],
)
def test_a_field_out_of_its_range_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(SoonerError) as caught:
        Settings(**values)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (lambda: check_whole("X: n", -1, 0, hint=", or None"), "X: n is -1; it must be a whole"),
        (
            lambda: check_whole("n", 1.0, words=("auto",)),
            "n is 1.0; it must be 'auto' or a whole number of",
        ),
        (lambda: check_number("x", 2.0, 0, 1, above=True), "x is 2; it must be above 0 and at mo"),
        (lambda: check_number("x", "2"), "x is '2'; it must be 0 or more"),
        (lambda: check_choice("kind", None, ["a", "b"]), "unknown kind 'None'; known: a, b"),
        (
            lambda: check_keys("setting", {"mdoe": 1}, Settings),
            "unknown setting 'mdoe' (did you mean",
        ),
    ],
)
def test_errors_name_the_thing_and_the_way_out(check: Callable[[], None], message: str) -> None:
    with pytest.raises(SoonerError) as caught:
        check()
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        MemoryError(),
        MemoryRanOutError("out of memory: the cache ..."),
        RuntimeError("[enforce fail at alloc_cpu.cpp:121] DefaultCPUAllocator: can't allocate "
                     "memory: you tried to allocate 9 bytes."),
        RuntimeError("MPS backend out of memory (MPS allocated: 9 GB)"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        torch.AcceleratorError("CUDA error: out of memory"),
    ],
)  # fmt: skip
def test_memory_ran_out(error: Exception) -> None:
    assert is_out_of_memory(error)
    assert not is_device_fault(error)


@pytest.mark.parametrize(
    "error",
    [
        torch.AcceleratorError("CUDA error: device-side assert triggered"),
        RuntimeError("CUDA error: an illegal memory access was encountered"),
        RuntimeError("HIP error: unspecified launch failure"),
        RuntimeError("Triton Error [CUDA]: misaligned address"),
        RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx`"),
    ],
)
def test_the_device_failed(error: Exception) -> None:
    assert is_device_fault(error)
    assert not is_out_of_memory(error)
