"""Launches and waits of one layer on a GPU, index and attention, by table of patterns."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from sooner.sparse import probe
from sooner.sparse.attention import sparse_attention
from sooner.sparse.modality import PromptLayout
from sooner.sparse.patterns import AShape, Dense, Grid, QBoundary, TwoDBoundary, VerticalSlash
from sparse_attention.contexts import states

triton = pytest.importorskip("triton")

FREE = ("empty", "new_empty", "empty_like", "empty_strided", "_unsafe_view", "lift_fresh")
WAITS = ("_local_scalar_dense", "nonzero", "masked_select", "unique_consecutive", "_unique2",
         "equal", "is_nonzero", "repeat_interleave", "bincount")  # fmt: skip
LAYOUT = PromptLayout.spans(
    ("padding", 5), ("text", 90), ("video", 960), ("text", 130), ("image", 300), ("video", 480),
    ("text", 210), frame=48,
)  # fmt: skip
KINDS = ("text", "image", "video")
PAIRS = [f"{query}:{key}" for query in KINDS for key in KINDS]
FOUR = TwoDBoundary({
    "video:video": Grid(), "text:text": VerticalSlash(50, 90),
    "text:video": VerticalSlash(90, 80), "video:text": Grid("frame", hline=False),
})  # fmt: skip
NINE = TwoDBoundary(dict.fromkeys(PAIRS, VerticalSlash(40, 80)))
GRIDS = TwoDBoundary(dict.fromkeys(PAIRS, Grid(vline=False, sink=3)))
STATIC = TwoDBoundary({"text:video": Grid(20, 0, sink=2), "video:video": AShape(8, 90)})
QUERIES = QBoundary({"video": Grid("frame"), "text": VerticalSlash(50, 90), "image": AShape(4, 64)})
TABLES: dict[str, list[Any]] = {
    "frame grid": [Grid("frame")],
    "automatic grid": [Grid()],
    "horizontal lines": [Grid(vline=False, slash=False, max_stride=60, sink=2)],
    "a-shape": [AShape(8, 90)],
    "vertical-slash": [VerticalSlash(90, 120)],
    "q-boundary": [QUERIES],
    "2d-boundary of four": [FOUR],
    "2d-boundary of nine": [NINE],
    "one of each": [Dense(), AShape(8, 90), VerticalSlash(60, 80, 9), Grid("frame"), QUERIES, FOUR],
    "everything at once": [NINE, GRIDS, STATIC, FOUR, QUERIES, Grid(), Grid(7, 3), Dense()],
}  # fmt: skip


class Counted(TorchDispatchMode):
    """Counts operations that a GPU would launch, and those for which the host would wait."""

    launches: list[str]
    waits: list[str]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, made = func.overloadpacket.__name__, func._schema.returns
        is_view = bool(made) and all(r.alias_info and not r.alias_info.is_write for r in made)
        masked = name == "index" and any(x is not None and x.dtype == torch.bool for x in args[1])
        self.waits += [name] * (name in WAITS or masked)
        self.launches += [name] * (not is_view and name not in FREE)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("table", TABLES)
def test_a_layer_takes_few_launches_and_never_waits(
    table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planes are there, as from a prefill's second layer on; the layer's plan is made anew."""
    from sooner.sparse.attention.triton import TritonBackend

    counted = Counted()
    counted.launches, counted.waits = [], []

    def launch(kernel: Any, *args: Any, **options: Any) -> None:
        counted.launches.append(kernel.fn.__name__)

    def reader(name: str, read: Any) -> Any:
        return lambda *args, **rest: (counted.waits.append(name), read(*args, **rest))[1]

    monkeypatch.setattr(triton.runtime.jit.JITFunction, "run", launch)
    monkeypatch.setattr(probe, "CACHED", probe.SCORES)  # a GPU takes all heads at once
    patterns, row = (TABLES[table] * 28)[:28], states(len(LAYOUT), 28, 4, 16)
    sparse_attention(row, LAYOUT, patterns, TritonBackend())
    for key in [key for key in LAYOUT.cache if key[:1] == ("plan",)]:
        del LAYOUT.cache[key]
    counted.launches.clear()
    for name in ("tolist", "cpu", "numpy"):
        monkeypatch.setattr(torch.Tensor, name, reader(name, getattr(torch.Tensor, name)))
    with counted:
        sparse_attention(row, LAYOUT, patterns, TritonBackend())
    assert len(counted.launches) <= 50, counted.launches
    assert not counted.waits
