"""What one layer has to do: its heads by plane and pattern, their indices, and launches."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..index import (
    Estimate,
    Fold,
    block_groups,
    distinct,
    draw_blocks,
    draw_grids,
    draw_lines,
    fold,
    grid_arrays,
    in_order,
    line_arrays,
    upload,
)
from ..modality import PromptLayout
from ..pairs import Index
from ..patterns import Boundary, HeadPattern, Pattern
from ..plane import Plane, PlaneStack, stack_of
from ..probe import (
    LAST,
    BlockCells,
    Kind,
    ProbeRows,
    Role,
    States,
    estimate_blocks,
    probe_rows,
)

Layouts = Sequence[PromptLayout]
Patterns = Sequence[Sequence[HeadPattern]]
"""Layouts of rows, and patterns of each row's query heads."""


class Cell(NamedTuple):
    """Names one head in one plane.

    Attributes:
        head: its number, counted on from row to row.
        query: the modality whose queries these are, nothing for all.
    """

    head: int
    plane: int
    query: str
    pattern: Pattern


class Launch(NamedTuple):
    """Cells of one kind that run at once: no two of them share a query of a head.

    Attributes:
        kind: which kernel runs it.
        rows: head, plane, place of the first query, place in the index and buffer of each cell.
        cells: the same on the device, `[5, cells]`.
    """

    kind: Kind
    rows: Sequence[tuple[int, int, int, int, int]]
    cells: Tensor


@dataclass(frozen=True, eq=False)
class LayerPlan:
    """What the patterns of a layer's heads mean for prompts; nothing in it depends on states.

    Attributes:
        stack: the planes.
        cells: by kind, in the order of their index; those that are probed come first.
        drawn: by kind, what each cell draws, `Lines`, `Spacing` or `Blocks`.
        probed: by kind, how many cells are.
        arrays: what indices and probe read, on the device, and rows and heads of `buffered` cells.
        roles: distinct ones of the probed cells.
        launches: of kernels, in order.
        blocks: cells whose blocks are estimated, in their order.
        entries: of these cells, in their index.
    """

    stack: PlaneStack
    cells: dict[Kind, list[Cell]]
    drawn: dict[Kind, list[Any]]
    probed: dict[Kind, int]
    arrays: dict[str, Tensor]
    roles: tuple[Role, ...]
    launches: list[Launch]
    blocks: list[BlockCells]
    entries: list[int]

    @classmethod
    def of(cls, layouts: Layouts, patterns: Patterns, group: int) -> LayerPlan:
        """Returns the plan of a layer, made once for some prompts.

        Args:
            group: query heads that share a key head.
        """
        # Tensors of an inference mode may not be written to outside it.
        heads, cache = tuple(map(tuple, patterns)), layouts[0].cache
        key = ("plan", heads, group, torch.is_inference_mode_enabled(), *layouts[1:])
        if key not in cache:
            cache[key] = cls._make(layouts, patterns, group)
        return cache[key]

    @classmethod
    def _make(cls, layouts: Layouts, patterns: Patterns, group: int) -> LayerPlan:
        regions: dict[tuple[int, str], list[tuple[int, Pattern]]] = defaultdict(list)
        width = len(patterns[0])
        for row, (layout, heads) in enumerate(zip(layouts, patterns, strict=True)):
            for head, pattern in enumerate(heads, row * width):
                inside = pattern.parts(layout) if isinstance(pattern, Boundary) else [("", pattern)]
                for region, inner in inside:
                    regions[row, region].append((head, inner))
        stack = stack_of(layouts, tuple(sorted(regions)))
        cells: dict[Kind, list[Cell]] = {"grid": [], "lines": [], "dense": [], "blocks": []}
        for number, key in enumerate(sorted(regions)):
            if len(stack.planes[number].queries) and len(stack.planes[number].keys):
                for head, inner in regions[key]:
                    cells[inner.kind].append(Cell(head, number, key[1].partition(":")[0], inner))
        drawn: dict[Kind, list[Any]] = {"dense": []}
        cells["blocks"].sort(key=lambda cell: cell.pattern.blocks()[:3])
        drawn["blocks"] = [cell.pattern.blocks() for cell in cells["blocks"]]
        probed: dict[Kind, int] = {"dense": 0, "blocks": 0}
        seen: list[tuple[int, Role]] = []
        for kind in ("grid", "lines"):
            some = cells[kind]
            planes = [stack.planes[cell.plane] for cell in some]
            order, drawn[kind], probed[kind] = in_order([cell.pattern for cell in some], planes)
            cells[kind] = [some[number] for number in order]
            for cell in cells[kind][: probed[kind]]:
                role = Role(cell.plane, kind, getattr(cell.pattern, "last_q", LAST))
                seen.append((cell.head, role))
        roles = tuple(dict.fromkeys(role for _, role in seen))
        numbers = [
            (head // width, head % width, head % width // group, roles.index(role))
            for head, role in seen
        ]
        arrays = {"probed": np.array(numbers, np.int64).reshape(-1, 4).T}
        if cells["grid"]:
            period = [stack.planes[cell.plane].period for cell in cells["grid"]]
            arrays |= grid_arrays(drawn["grid"], period)
        if cells["lines"]:
            arrays |= line_arrays(drawn["lines"])
        places = [(cell.head, cell.plane) for cell in cells["blocks"]]
        blocks, entries, more = block_groups(drawn["blocks"], places, stack, group)
        arrays |= more if blocks else {}
        tables, buffered = _launches(cells, drawn, stack, entries)
        arrays["buffered"] = np.array(divmod(np.array(buffered, np.int64), width))
        arrays |= {str(turn): np.array(rows, np.int64).T for turn, rows in tables.items()}
        tensors = upload(arrays, layouts[0].modality.device)
        launches = [Launch(turn[1], rows, tensors[str(turn)]) for turn, rows in tables.items()]
        return cls(stack, cells, drawn, probed, tensors, roles, launches, blocks, entries)


Turns = dict[tuple[int, Kind, int], list[tuple[int, int, int, int, int]]]


def _launches(
    cells: dict[Kind, list[Cell]],
    drawn: dict[Kind, list[Any]],
    stack: PlaneStack,
    entries: Sequence[int],
) -> tuple[Turns, list[int]]:
    """Returns `Launch.rows` by turn, kind and size of blocks, and the heads that have a buffer.

    Cells with blocks have `entries` in their index, others their number among those of their kind.

    Pairs of modalities that share the queries of a head take turns, for each adds to what the ones
    before have written. Queries to which one kernel adds need no buffer: it knows their result.
    """
    turns: Counter[tuple[Kind, int, str]] = Counter()
    kernels: Counter[tuple[int, str]] = Counter()
    rows: Turns = defaultdict(list)
    for kind, some in cells.items():
        for number, cell in enumerate(some):
            grid = drawn[kind][number] if kind == "grid" else None
            kernels[cell.head, cell.query] += grid.has_classes + grid.has_band if grid else 1
    buffers = {h: n for n, h in enumerate({h: 0 for (h, _), count in kernels.items() if count > 1})}

    def add(kind: Kind, cell: Cell, first: int, number: int, size: int = 0) -> None:
        sharing, buffer = (kind, cell.head, cell.query), buffers.get(cell.head, -1)
        rows[turns[sharing], kind, size].append((cell.head, cell.plane, first, number, buffer))
        turns[sharing] += 1

    for kind, some in cells.items():
        for number, cell in enumerate(some):
            if kind == "blocks":
                add(kind, cell, 0, entries[number], drawn[kind][number].size)
                continue
            if kind != "lines":
                add(kind, cell, 0, number)
                continue
            last = drawn[kind][number].bottom
            first = max(len(stack.planes[cell.plane].queries) - last, 0)
            add(kind, cell, first, number)
            if last:  # queries that see everything
                add("dense", cell, first, number)
    return rows, list(buffers)


@dataclass(frozen=True, eq=False)
class HeadGroup:
    """Heads that share a plane and a kind.

    Attributes:
        heads: their numbers, `[picked]`.
        index: what they see; `None` for dense ones.
        last: queries of the estimate behind their patterns, 0 if there is none.
    """

    plane: Plane
    heads: Tensor
    index: Index | None
    last: int

    @property
    def pairs(self) -> Tensor:
        """Query-key pairs that each of the heads computes, counted exactly, `[picked]` int64."""
        if self.index is None:
            return torch.full_like(self.heads, self.plane.pairs)
        return self.index.pairs(self.plane)


@dataclass(frozen=True, eq=False)
class LayerWork:
    """A plan, and the indices that the layer's states give.

    Attributes:
        indices: by kind, each of all cells of its part.
    """

    plan: LayerPlan
    indices: dict[Kind, Index]

    @property
    def groups(self) -> list[HeadGroup]:
        """Returns the same work by plane and kind."""
        members: dict[tuple[Kind, int, int], list[int]] = defaultdict(list)
        for kind, cells in self.plan.cells.items():
            for number, cell in enumerate(cells):
                plane, last = self.plan.stack.planes[cell.plane], 0
                if number < self.plan.probed[kind]:
                    last = getattr(cell.pattern, "last_q", LAST)
                if kind == "blocks":  # sampled queries see half of the keys on average
                    size, rows, *_ = self.plan.drawn[kind][number]
                    last = -(-len(plane.keys) // size) * rows // 2
                last = min(last, len(plane.queries) - plane.blind)
                members[kind, cell.plane, last].append(number)
        groups = []
        for (kind, row, last), numbers in members.items():
            plane = self.plan.stack.planes[row]
            some = [self.plan.entries[n] for n in numbers] if kind == "blocks" else numbers
            places = torch.tensor(some, device=plane.keys.device)
            heads = [self.plan.cells[kind][number].head for number in numbers]
            index = None if kind == "dense" else self.indices[kind].take(places)
            groups.append(HeadGroup(plane, places.new_tensor(heads), index, last))
        return groups


def layer_work(
    states: States, layouts: Layouts, patterns: Patterns, fold: Fold = fold,
    estimate: Estimate = estimate_blocks,
) -> LayerWork:  # fmt: skip
    """Returns what a layer has to do; see `Backend.layer`.

    Args:
        states: of one row or of all.
        fold: what sums over classes of keys.
        estimate: what estimates blocks.
    """
    plan = LayerPlan.of(layouts, patterns, states.group)
    arrays, stack, drawn, seen = plan.arrays, plan.stack, plan.drawn, None
    spaced = lined = None
    if plan.roles:
        row, heads, kv_heads, roles = arrays["probed"]
        rows = ProbeRows.of(stack, plan.roles, roles)
        spread = any(spacing.is_spread for spacing in drawn["grid"])
        parts = states.queries, states.keys
        queries, keys = (part[None] if part.dim() == 3 else part for part in parts)
        picked = (row, heads), (row, kv_heads)
        seen = probe_rows(queries, keys, rows, *picked, states.scale, spread)
        spaced, lined = rows.weigh(seen.sums).tensor_split([plan.probed["grid"]])
    indices: dict[Kind, Index] = {}
    if drawn["grid"]:
        indices["grid"] = draw_grids(drawn["grid"], arrays, spaced, seen, stack.rank, fold)
    if drawn["lines"]:
        indices["lines"] = draw_lines(drawn["lines"], arrays, lined, stack.rank, stack.width)
    if drawn["blocks"]:
        weights = estimate(states, stack, plan.blocks, arrays["blocks"])
        blocks = distinct(drawn["blocks"], plan.entries)
        indices["blocks"] = draw_blocks(blocks, arrays, weights)
    return LayerWork(plan, indices)
