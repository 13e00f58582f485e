"""What the timing of kernels reports, without a GPU to time."""

from __future__ import annotations

import pytest
import torch

from sooner.errors import SoonerError
from sooner.sparse.attention import Reference, States
from sooner.sparse.modality import PromptLayout
from sooner_lab.bench.prefill import kernels


def test_timing_without_a_gpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SoonerError, match="no CUDA device"):
        kernels.time_kernels([64])


def test_speed_ups_are_those_over_torch_s_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = {"sdpa": 8.0, "dense": 10.0, "vertical-slash": 4.0, "grid": 1.0}
    ran = []

    def timed(arms: dict[str, object], repeats: int) -> dict[str, float]:
        ran.extend(arms)
        for name in ("dense", "vertical-slash", "grid"):
            arms[name]()  # type: ignore[operator]
        return seconds

    monkeypatch.setattr(kernels, "_interleaved", timed)
    row = States(*(torch.randn(2, 96, 16) for _ in range(3)), 0.25)
    found = kernels._arms(row, PromptLayout.text(96), 8, Reference(), 1)
    assert ran == list(seconds)
    assert found["grid"]["speedup"] == 8.0
    assert found["dense"]["flops_share"] == 1.0
    assert 0.2 < found["grid"]["flops_share"] < 0.5
    assert found["grid"]["share_reached"] == 8.0 * found["grid"]["flops_share"]
