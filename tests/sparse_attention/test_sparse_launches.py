"""Launches and waits of one layer on a GPU, index and attention, by table of patterns."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from sooner.sparse.attention import sparse_attention
from sooner.sparse.modality import PromptLayout
from sooner.sparse.patterns import (
    AShape,
    Dense,
    Grid,
    HeadPattern,
    QBoundary,
    TwoDBoundary,
    VerticalSlash,
)
from sparse_attention.contexts import states

triton = pytest.importorskip("triton")

HEADS, KV_HEADS = 28, 4
MOST = 50
FREE = ("empty", "new_empty", "empty_like", "empty_strided", "_unsafe_view", "lift_fresh")
WAITS = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "unique_consecutive",
         "_unique2", "equal", "is_nonzero", "repeat_interleave", "bincount")  # fmt: skip
LAYOUT = PromptLayout.spans(
    ("padding", 5), ("text", 90), ("video", 960), ("text", 130), ("image", 300), ("video", 480),
    ("text", 210), frame=48,
)  # fmt: skip
FOUR = TwoDBoundary(
    {
        "video:video": Grid(), "text:text": VerticalSlash(50, 90),
        "text:video": VerticalSlash(90, 80), "video:text": Grid("frame", hline=False),
    }
)  # fmt: skip
PAIRS = [
    f"{query}:{key}" for query in ("text", "image", "video") for key in ("text", "image", "video")
]
LINES = TwoDBoundary(dict.fromkeys(PAIRS, VerticalSlash(40, 80)))
GRIDS = TwoDBoundary(dict.fromkeys(PAIRS, Grid(vline=False, sink=3)))
MIXED = TwoDBoundary({"text:video": Grid(20, 0, sink=2), "video:video": AShape(8, 90)})
QUERIES = QBoundary({"video": Grid("frame"), "text": VerticalSlash(50, 90), "image": AShape(4, 64)})
TABLES: dict[str, list[HeadPattern]] = {
    "frame grid": [Grid("frame")],
    "automatic grid": [Grid()],
    "horizontal lines": [Grid(vline=False, slash=False, max_stride=60, sink=2)],
    "a-shape": [AShape(8, 90)],
    "vertical-slash": [VerticalSlash(90, 120)],
    "q-boundary": [QUERIES],
    "2d-boundary of four dynamic pairs": [FOUR],
    "2d-boundary of nine": [LINES],
    "one of each": [
        Dense(),
        AShape(8, 90),
        VerticalSlash(60, 80, 32),
        Grid("frame"),
        QUERIES,
        FOUR,
    ],
    "everything at once": [LINES, GRIDS, MIXED, FOUR, QUERIES, Grid(), Grid(7, 3), Dense()],
}


class Counted(TorchDispatchMode):
    """Counts operations that a GPU would launch, and those for which the host would wait."""

    def __init__(self) -> None:
        super().__init__()
        self.launches: list[str] = []
        self.waits: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, made = func.overloadpacket.__name__, func._schema.returns
        is_view = bool(made) and all(r.alias_info and not r.alias_info.is_write for r in made)
        masked = name == "index" and any(x is not None and x.dtype == torch.bool for x in args[1])
        if name in WAITS or masked:
            self.waits.append(name)
        if not (is_view or name in FREE):
            self.launches.append(name)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("table", TABLES)
def test_a_layer_takes_few_launches_and_never_waits(
    table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planes are there, as from a prefill's second layer on; the layer's plan is made anew."""
    if triton.knobs.runtime.interpret:
        pytest.skip("the interpreter runs operations of its own")
    from sooner.sparse.attention.triton import TritonBackend

    counted = Counted()

    def launch(kernel: Any, *args: Any, **options: Any) -> None:
        counted.launches.append(kernel.fn.__name__)

    def read(name: str) -> Any:
        whole = getattr(torch.Tensor, name)
        return lambda tensor, *args, **rest: (
            counted.waits.append(name),
            whole(tensor, *args, **rest),
        )[1]

    monkeypatch.setattr(triton.runtime.jit.JITFunction, "run", launch)
    patterns = (TABLES[table] * HEADS)[:HEADS]
    row = states(len(LAYOUT), HEADS, KV_HEADS, 16)
    sparse_attention(row, LAYOUT, patterns, TritonBackend())
    del LAYOUT.cache["plan", tuple(patterns), HEADS // KV_HEADS]
    counted.launches.clear()
    for name in ("tolist", "cpu", "numpy"):
        monkeypatch.setattr(torch.Tensor, name, read(name))
    with counted:
        sparse_attention(row, LAYOUT, patterns, TritonBackend())
    print(table, len(counted.launches), len(counted.waits), counted.launches)
    assert len(counted.launches) <= MOST, counted.launches
    assert not counted.waits
