"""Sparse attention on GPUs: Triton kernels of our own, chosen by how a plane is permuted."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ...engine.attention.kernel import on_device
from ..kernels.blocks import estimate, marked_blocks
from ..kernels.common import cleared, tiles_for
from ..kernels.dense import dense
from ..kernels.fold import fold
from ..kernels.grid import grid
from ..kernels.indices import line_lists, spacings
from ..kernels.vertical_slash import vertical_slash
from ..pairs import BlockIndex, GridIndex, Index, LineIndex
from ..patterns import Spacing
from ..plane import Plane, PlaneStack
from ..probe import Kind
from .partial import Backend, Made, Partial, States
from .work import Launch, Layouts, Patterns, layer_work


class TritonBackend(Backend):
    """Runs kernels that load and store through a plane's permutation (MMInference, appendix G).

    Queries are always loaded through their slots, keys where they do not stand at their ranks: in
    2D-boundaries, and in rows with gaps of padding. All heads that share a kind of pattern run at
    once, whatever their planes.
    """

    name = "triton"
    fold = staticmethod(fold)
    estimate = staticmethod(estimate)

    def attend(
        self, states: States, plane: Plane, index: Index | None, heads: Tensor, into: Partial
    ) -> None:
        """Attends to the plane's pairs; asks the device what an index holds."""
        if not (len(plane.queries) and len(plane.keys) and len(heads)):
            return
        first, drawn = torch.zeros_like(heads), []
        kinds: tuple[Kind, ...] = ("dense",)
        if isinstance(index, LineIndex):
            first, kinds = (len(plane.queries) - index.bottom).clamp(min=0), ("lines", "dense")
        elif isinstance(index, GridIndex):
            entries = zip(*(column.tolist() for column in vars(index).values()), strict=True)
            drawn, kinds = [Spacing(*entry) for entry in entries], ("grid",)
        elif isinstance(index, BlockIndex):
            kinds = ("blocks",)
        numbers = torch.arange(len(heads), device=heads.device)
        cells = torch.stack([heads, torch.zeros_like(heads), first, numbers, heads])
        sizes = index.sizes if isinstance(index, BlockIndex) else (0,) * len(heads)
        parts = [cells[:, [s == size for s in sizes]] for size in dict.fromkeys(sizes)]
        launches = [Launch(kind, part.T.tolist(), part) for kind in kinds for part in parts]
        indices = {} if index is None else {kinds[0]: index}
        self._launch(states, PlaneStack((plane,)), indices, drawn, launches, into)

    def layer(self, states: States, layouts: Layouts, patterns: Patterns) -> Made:
        """Returns causal attention of some rows, all of them in the same launches."""
        work = layer_work(states, layouts, patterns, self.fold, self.estimate)
        plan, heads = work.plan, tuple(work.plan.arrays["buffered"])
        into, output = cleared(states, len(heads[0]))
        self._launch(states, plan.stack, work.indices, plan.drawn["grid"], plan.launches, into)
        if len(into.output):
            output[heads] = into.output.to(output.dtype)
        return output.to(states.queries.dtype), into.lse, [work]

    def _launch(
        self, states: States, stack: PlaneStack, indices: dict[Kind, Index],
        drawn: Sequence[Spacing], launches: Sequence[Launch], into: Partial,
    ) -> None:  # fmt: skip
        tiles, lines, spaced = tiles_for(states), indices.get("lines"), indices.get("grid")
        marked = indices.get("blocks")
        with on_device(states.queries):
            lists = line_lists(lines, stack.rank) if isinstance(lines, LineIndex) else None
            table = spacings(spaced) if isinstance(spaced, GridIndex) else None
            for kind, rows, cells in launches:
                if kind == "dense":  # all queries, or those that see everything
                    counts = [len(stack.planes[row[1]].queries) - row[2] for row in rows]
                    dense(states, stack, cells, into, counts, tiles)
                elif kind == "blocks" and isinstance(marked, BlockIndex):
                    size = marked.sizes[rows[0][3]]
                    marked_blocks(states, stack, marked, size, cells, into, tiles)
                elif kind == "grid" and table is not None:
                    some = [drawn[row[3]] for row in rows]
                    grid(states, stack, table, some, cells, into, tiles)
                elif lists is not None:
                    vertical_slash(states, stack, lists, cells, into, tiles)
