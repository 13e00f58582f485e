"""What ran out of memory, what broke the device, and what is neither."""

from __future__ import annotations

import pytest
import torch

from sooner.errors import MemoryRanOutError, is_device_fault, is_out_of_memory


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
