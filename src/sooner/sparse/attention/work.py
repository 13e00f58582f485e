"""What one layer has to do: its heads by plane and pattern, their indices, and launches."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..index import Fold, draw_grids, draw_lines, fold, grid_arrays, in_order, line_arrays, upload
from ..modality import PromptLayout
from ..pairs import Index
from ..patterns import Boundary, HeadPattern, Lines, Pattern
from ..plane import Plane, PlaneStack, stack_of
from ..probe import LAST, Kind, ProbeRows, Role, States, probe_rows


class Cell(NamedTuple):
    """Names one head in one plane.

    Attributes:
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
        rows: head, plane, place of the first query and place in the index of each cell.
        cells: the same on the device, `[4, cells]`.
    """

    kind: Kind
    rows: Sequence[tuple[int, int, int, int]]
    cells: Tensor


@dataclass(frozen=True, eq=False)
class LayerPlan:
    """What the patterns of a layer's heads mean for a prompt; nothing in it depends on states.

    Attributes:
        stack: the planes.
        cells: by kind, in the order of their index; those that are probed come first.
        drawn: by kind, what each cell draws, `Lines` or `Spacing`.
        probed: by kind, how many cells are.
        arrays: what indices and probe read, on the device.
        roles: distinct ones of the probed cells.
        launches: of kernels, in order.
    """

    stack: PlaneStack
    cells: dict[Kind, list[Cell]]
    drawn: dict[Kind, list[Any]]
    probed: dict[Kind, int]
    arrays: dict[str, Tensor]
    roles: tuple[Role, ...]
    launches: list[Launch]

    @classmethod
    def of(cls, layout: PromptLayout, patterns: tuple[HeadPattern, ...], group: int) -> LayerPlan:
        """Returns the plan of a layer, made once for a prompt.

        Args:
            patterns: of each query head.
            group: query heads that share a key head.
        """
        # Tensors of an inference mode may not be written to outside it.
        key = ("plan", patterns, group, torch.is_inference_mode_enabled())
        if key not in layout.cache:
            layout.cache[key] = cls._make(layout, patterns, group)
        return layout.cache[key]

    @classmethod
    def _make(
        cls, layout: PromptLayout, patterns: tuple[HeadPattern, ...], group: int
    ) -> LayerPlan:
        regions: dict[str, list[tuple[int, Pattern]]] = defaultdict(list)
        for head, pattern in enumerate(patterns):
            inside = pattern.parts(layout) if isinstance(pattern, Boundary) else [("", pattern)]
            for region, inner in inside:
                regions[region].append((head, inner))
        stack = stack_of(layout, tuple(sorted(regions)))
        cells: dict[Kind, list[Cell]] = {"grid": [], "lines": [], "dense": []}
        for number, region in enumerate(sorted(regions)):
            if len(stack.planes[number].queries) and len(stack.planes[number].keys):
                for head, inner in regions[region]:
                    cell = Cell(head, number, region.partition(":")[0], inner)
                    cells[inner.kind].append(cell)
        drawn: dict[Kind, list[Any]] = {"dense": []}
        probed: dict[Kind, int] = {"dense": 0}
        seen: list[tuple[int, int, Role]] = []
        for kind in ("grid", "lines"):
            some = cells[kind]
            planes = [stack.planes[cell.plane] for cell in some]
            order, drawn[kind], probed[kind] = in_order([cell.pattern for cell in some], planes)
            cells[kind] = [some[number] for number in order]
            for cell in cells[kind][: probed[kind]]:
                role = Role(cell.plane, kind, getattr(cell.pattern, "last_q", LAST))
                seen.append((cell.head, cell.head // group, role))
        roles = tuple(dict.fromkeys(role for *_, role in seen))
        numbers = [(head, kv_head, roles.index(role)) for head, kv_head, role in seen]
        arrays = {"probed": np.array(numbers, np.int64).reshape(-1, 3).T}
        if cells["grid"]:
            period = [stack.planes[cell.plane].period for cell in cells["grid"]]
            arrays |= grid_arrays(drawn["grid"], period)
        if cells["lines"]:
            arrays |= line_arrays(drawn["lines"])
        tables = _launches(cells, drawn["lines"], stack)
        arrays |= {str(turn): np.array(rows, np.int64).T for turn, rows in tables.items()}
        tensors = upload(arrays, layout.modality.device)
        launches = [Launch(turn[1], rows, tensors[str(turn)]) for turn, rows in tables.items()]
        return cls(stack, cells, drawn, probed, tensors, roles, launches)


Turns = dict[tuple[int, Kind], list[tuple[int, int, int, int]]]


def _launches(cells: dict[Kind, list[Cell]], lines: Sequence[Lines], stack: PlaneStack) -> Turns:
    """Returns head, plane, first query and number of each cell, by turn and kind.

    Pairs of modalities that share the queries of a head take turns, for each adds to what the ones
    before have written.
    """
    turns: Counter[tuple[Kind, int, str]] = Counter()
    rows: Turns = defaultdict(list)

    def add(kind: Kind, cell: Cell, first: int, number: int) -> None:
        sharing = kind, cell.head, cell.query
        rows[turns[sharing], kind].append((cell.head, cell.plane, first, number))
        turns[sharing] += 1

    for kind, some in cells.items():
        for number, cell in enumerate(some):
            if kind != "lines":
                add(kind, cell, 0, number)
                continue
            last = lines[number].bottom
            first = max(len(stack.planes[cell.plane].queries) - last, 0)
            add(kind, cell, first, number)
            if last:  # queries that see everything
                add("dense", cell, first, number)
    return rows


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
                last = min(last, len(plane.queries) - plane.blind)
                members[kind, cell.plane, last].append(number)
        groups = []
        for (kind, row, last), numbers in members.items():
            plane = self.plan.stack.planes[row]
            places = torch.tensor(numbers, device=plane.keys.device)
            heads = [self.plan.cells[kind][number].head for number in numbers]
            index = None if kind == "dense" else self.indices[kind].take(places)
            groups.append(HeadGroup(plane, places.new_tensor(heads), index, last))
        return groups


def layer_work(
    states: States, layout: PromptLayout, patterns: Sequence[HeadPattern], fold: Fold = fold
) -> LayerWork:
    """Returns what a layer has to do; see `sparse_attention`.

    Args:
        fold: what sums over classes of keys.
    """
    plan = LayerPlan.of(layout, tuple(patterns), states.group)
    arrays, stack, drawn, seen = plan.arrays, plan.stack, plan.drawn, None
    spaced = lined = None
    if plan.roles:
        heads, kv_heads, roles = arrays["probed"]
        rows = ProbeRows.of(stack, plan.roles, roles)
        spread = any(spacing.is_spread for spacing in drawn["grid"])
        seen = probe_rows(states.queries, states.keys, rows, heads, kv_heads, states.scale, spread)
        spaced, lined = rows.weigh(seen.sums).tensor_split([plan.probed["grid"]])
    indices: dict[Kind, Index] = {}
    if drawn["grid"]:
        indices["grid"] = draw_grids(drawn["grid"], arrays, spaced, seen, stack.rank, fold)
    if drawn["lines"]:
        indices["lines"] = draw_lines(drawn["lines"], arrays, lined, stack.rank, stack.width)
    return LayerWork(plan, indices)
