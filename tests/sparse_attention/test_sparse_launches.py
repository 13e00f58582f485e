"""Launches, programs and waits of a layer on a GPU, index and attention, by table of patterns."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from sooner.sparse import probe
from sooner.sparse.attention import States
from sooner.sparse.modality import PromptLayout
from sooner.sparse.patterns import (
    AShape,
    BlockTopP,
    Dense,
    Grid,
    QBoundary,
    TwoDBoundary,
    VerticalSlash,
)
from sparse_attention.contexts import states

triton = pytest.importorskip("triton")

FREE = ("empty", "new_empty", "empty_like", "empty_strided", "_unsafe_view", "lift_fresh")
WAITS = ("_local_scalar_dense", "nonzero", "masked_select", "unique_consecutive", "_unique2",
         "equal", "is_nonzero", "repeat_interleave", "bincount")  # fmt: skip
LAYOUTS = [
    PromptLayout.spans(
        ("padding", 5 + fewer), ("text", 90), ("video", 960), ("text", 130), ("image", 300),
        ("video", 480), ("text", 210 - fewer), frame=48,
    )
    for fewer in (0, 60, 110)
]  # fmt: skip
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
    "blocks": [BlockTopP()],
    "blocks of two sizes in nine pairs": [
        TwoDBoundary(dict.fromkeys(PAIRS, BlockTopP())), BlockTopP(0.5, 128),
    ],
    "blocks beside lines": [QBoundary({"video": BlockTopP(), "text": VerticalSlash(50, 90)}), NINE],
    "one of each": [Dense(), AShape(8, 90), VerticalSlash(60, 80, 9), Grid("frame"), BlockTopP(),
                    QUERIES, FOUR],
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


def batch(rows: int, tokens: int, heads: int, dim: int) -> States:
    row = states(tokens, heads, 4, dim)
    parts = (part.expand(rows, *part.shape) for part in (row.queries, row.keys, row.values))
    return States(*parts, row.scale)


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("table", TABLES)
def test_a_layer_takes_few_launches_and_never_waits(
    table: str, rows: int, monkeypatch: pytest.MonkeyPatch
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
    monkeypatch.setattr(probe, "CACHED", rows * probe.SCORES)  # a GPU takes all heads at once
    patterns, layouts = [(TABLES[table] * 28)[:28]] * rows, LAYOUTS[:rows]
    prompts = batch(rows, len(LAYOUTS[0]), 28, 16)
    TritonBackend().layer(prompts, layouts, patterns)
    for key in [key for key in layouts[0].cache if key[:1] == ("plan",)]:
        del layouts[0].cache[key]
    counted.launches.clear()
    for name in ("tolist", "cpu", "numpy"):
        monkeypatch.setattr(torch.Tensor, name, reader(name, getattr(torch.Tensor, name)))
    with counted:
        TritonBackend().layer(prompts, layouts, patterns)
    assert len(counted.launches) <= 50, counted.launches
    assert not counted.waits


WORDS = QBoundary({"video": AShape(4, 64), "text": Dense()})


@pytest.mark.parametrize("pattern", [Grid(256, 3), WORDS], ids=["line", "words"])
def test_few_queries_that_see_everything_fill_a_gpu(
    pattern: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line of 512 queries in 131,072 tokens, or as many words behind a video."""
    from sooner.sparse.attention.triton import TritonBackend

    grids = {}

    def launch(kernel: Any, *args: Any, grid: tuple[int, int], **options: Any) -> None:
        grids[kernel.fn.__name__] = grid

    monkeypatch.setattr(triton.runtime.jit.JITFunction, "run", launch)
    layout = PromptLayout.spans(("video", (1 << 17) - 512), ("text", 512), frame=256)
    TritonBackend().layer(batch(1, len(layout), 28, 16), [layout], [[pattern] * 28])
    turns, cells = grids["dense_kernel"]
    assert 1024 < turns * cells <= 2048, "eight tiles a head would be 224 programs"
    assert cells == grids["merge_kernel"][1] == 28
