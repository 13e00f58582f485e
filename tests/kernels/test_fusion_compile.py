"""Fused kernels compiled for GPUs that are not here: registers and spills, and no sum fused."""

from __future__ import annotations

import pytest
import torch

from ahead_of_time import compiling, needs_compiler
from sooner.engine.fusion import kernels

pytestmark = [pytest.mark.slow, needs_compiler]


@pytest.mark.parametrize("width", [896, 8192])
def test_norms_spill_nothing(width: int) -> None:
    x, weight = (torch.empty(shape, dtype=torch.bfloat16) for shape in ((2, 3, width), (width,)))
    with compiling(90) as launches:
        kernels.add_rms_norm(x, x, weight, 1e-6, False)
        kernels.add_rms_norm(x, None, weight, 1e-6, True)
    assert [launch.spilled for launch in launches] == [0, 0], launches
    assert all(launch.registers <= 64 for launch in launches), launches
    assert [launch.grid for launch in launches] == [(6,), (6,)]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_rotations_spill_nothing_and_round_twice(dtype: torch.dtype) -> None:
    queries, keys = (
        torch.empty(2, 3, heads, 128, dtype=dtype).transpose(1, 2) for heads in (28, 4)
    )
    angles = torch.empty(2, 3, 128, dtype=dtype)
    with compiling(90) as launches:
        kernels.rope(queries, keys, angles, angles)
    (rope,) = launches
    assert rope.spilled == 0, rope
    assert "fma.rn.f32" not in rope.ptx
    assert rope.grid == (6, 2)
