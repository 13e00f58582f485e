"""Masks of every pattern, windows and counted pairs against definitions, token by token."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from sooner.sparse.attention import Partial, Reference, States, sparse_attention
from sooner.sparse.attention.run import jobs
from sooner.sparse.index import fold
from sooner.sparse.modality import PromptLayout
from sooner.sparse.pairs import BlockIndex, GridIndex, LineIndex, share
from sooner.sparse.patterns import (
    AShape,
    BlockTopP,
    Dense,
    Grid,
    HeadPattern,
    QBoundary,
    TwoDBoundary,
    VerticalSlash,
)
from sooner.sparse.plane import Plane, plane_of, whole
from sparse_attention.contexts import mask_of

NAMES = ("text", "image", "video", "padding")
BLOCK = 64

spans = st.lists(st.tuples(st.sampled_from(NAMES), st.integers(1, 40)), min_size=1, max_size=7)
layouts = st.builds(
    lambda parts, frame: PromptLayout.spans(*parts, frame=frame), spans, st.integers(0, 9)
)
numbers = st.integers(1, 30)
plain = st.one_of(
    st.builds(Dense),
    st.builds(AShape, st.integers(0, 9), numbers),
    st.builds(VerticalSlash, numbers, numbers),
    st.builds(
        BlockTopP, st.floats(0, 1), st.sampled_from([16, 32]), numbers, st.integers(0, 40),
        bottom=st.integers(0, 40),
    ),
    st.builds(
        Grid, numbers, numbers, st.just(True), st.booleans(), st.booleans(),
        sink=st.integers(0, 4), local=numbers,
    ),
)  # fmt: skip
bounded = st.one_of(
    st.builds(QBoundary, st.dictionaries(st.sampled_from(NAMES[:3]), plain)),
    st.builds(
        TwoDBoundary,
        st.dictionaries(
            st.builds("{}:{}".format, st.sampled_from(NAMES[:3]), st.sampled_from(NAMES[:3])), plain
        ),
    ),
)


def row(layout: PromptLayout, heads: int = 1) -> States:
    generator = torch.Generator().manual_seed(len(layout))
    drawn = torch.randn(3, heads, len(layout), 4, generator=generator)
    return States(drawn[0], drawn[1], drawn[2], 0.7)


def real(layout: PromptLayout) -> list[int]:
    return [slot for slot, kind in enumerate(layout.modality.tolist()) if kind >= 0]


@given(layouts, st.sampled_from(NAMES[:3]), st.sampled_from(NAMES[:3]))
def test_a_frontier_counts_the_keys_up_to_the_query(
    layout: PromptLayout, query: str, key: str
) -> None:
    for plane in (whole(layout), plane_of(layout, query), plane_of(layout, f"{query}:{key}")):
        keys = plane.keys.tolist()
        expected = [
            sum(slot <= position for slot in keys) - 1 for position in plane.queries.tolist()
        ]
        assert plane.frontier.tolist() == expected


@given(layouts)
def test_regions_of_a_boundary_cover_each_causal_pair_once(layout: PromptLayout) -> None:
    for boundary in (QBoundary(), TwoDBoundary()):
        count = torch.zeros(len(layout), len(layout), dtype=torch.int)
        for region, _ in boundary.parts(layout):
            plane = plane_of(layout, region)
            rank = torch.arange(len(plane.keys))
            seen = rank <= plane.frontier[:, None]
            count[plane.queries[:, None], plane.keys] += seen.int()
        expected = torch.zeros_like(count)
        slots = torch.tensor(real(layout), dtype=torch.long)
        expected[slots[:, None], slots] = torch.ones(len(slots), len(slots), dtype=torch.int).tril()
        assert torch.equal(count, expected)


def permuted(pattern: TwoDBoundary, layout: PromptLayout, states: States) -> Tensor:
    """A 2D-boundary mask the literal way: permute by modality, mask each block, permute back."""
    kinds = layout.modality.tolist()
    order = sorted(real(layout), key=lambda slot: (kinds[slot], slot))  # [real]
    names = {0: "text", 1: "image", 2: "video"}
    grouped = torch.zeros(len(order), len(order), dtype=torch.bool)
    for region, inner in pattern.parts(layout):
        query, key = region.split(":")
        rows = [i for i, slot in enumerate(order) if names[kinds[slot]] == query]
        columns = [i for i, slot in enumerate(order) if names[kinds[slot]] == key]
        plane = plane_of(layout, f"{query}:{key}")
        alone = {query: inner} if query == key else None
        if alone is not None:  # inside one modality the block is the pattern on its tokens alone
            slots = torch.tensor([order[i] for i in rows])
            part = PromptLayout(layout.modality[slots], layout.frames[slots])
            block = mask_of(inner, part, states.queries[0, slots], states.keys[0, slots], 0.7)
        else:
            block = mask_of(
                TwoDBoundary({region: inner}), layout, states.queries[0], states.keys[0], 0.7
            )[plane.queries][:, plane.keys]
        grouped[torch.tensor(rows)[:, None], torch.tensor(columns)] = block
    full = torch.zeros(len(layout), len(layout), dtype=torch.bool)
    slots = torch.tensor(order, dtype=torch.long)
    full[slots[:, None], slots] = grouped
    return full


@given(layouts, bounded.filter(lambda candidate: isinstance(candidate, TwoDBoundary)))
def test_permute_mask_unpermute_is_the_mask(layout: PromptLayout, pattern: TwoDBoundary) -> None:
    states = row(layout)
    made = mask_of(pattern, layout, states.queries[0], states.keys[0], 0.7)
    assert torch.equal(made, permuted(pattern, layout, states))


@given(layouts, plain)
def test_a_query_boundary_masks_as_the_pattern_of_the_whole(
    layout: PromptLayout, inner: HeadPattern
) -> None:
    """Keys stay where they are: a static pattern's rows are those that it has on everything."""
    if getattr(inner, "dynamic", False):
        return  # another estimate
    rows = layout.where("video")
    made = mask_of(QBoundary({"video": inner}), layout)[rows]
    assert torch.equal(made, mask_of(inner, layout)[rows])


@given(st.integers(1, 200), numbers, numbers, numbers)
def test_lines_are_what_they_are_called(keys: int, vertical: int, slash: int, bottom: int) -> None:
    plane = whole(PromptLayout.text(keys))
    columns = torch.arange(0, keys, vertical)
    apart = torch.tensor(list(range(slash, keys, slash)), dtype=torch.long)
    index = LineIndex.build(plane, [columns], [apart], [bottom])
    made = index.seen(0, plane)
    for query in range(keys):
        end = (query // BLOCK + 1) * BLOCK
        inside = {key for d in [0, *apart.tolist()] for key in range(end - d - BLOCK, end - d)}
        for key in range(query + 1):
            seen = key in inside or key % vertical == 0 or query >= keys - bottom
            assert bool(made[query, key]) == seen, (query, key)


@given(
    st.integers(1, 70), st.integers(1, 20), st.integers(0, 19), st.tuples(*[st.booleans()] * 3),
    st.integers(0, 6), st.integers(1, 6),
)  # fmt: skip
def test_grid_lines_are_what_they_are_called(
    keys: int, stride: int, phase: int, flags: tuple[bool, ...], sink: int, local: int
) -> None:
    phase %= stride
    values = (stride, phase, *flags, sink, local)
    index = GridIndex(*(torch.tensor([value]) for value in values))
    made = index.seen(0, whole(PromptLayout.text(keys)))
    hline, vline, slash = flags
    for query in range(keys):
        for key in range(keys):
            seen = (
                (hline and query % stride == phase)
                or (vline and key % stride == phase)
                or (slash and query % stride == key % stride)
                or key < sink
                or query - key < local
            )
            assert bool(made[0 + query, key]) == (seen and key <= query), (query, key)


@given(
    layouts.filter(lambda candidate: len(real(candidate)) > 2), st.one_of(plain, bounded), st.data()
)
def test_what_comes_later_moves_nothing(
    layout: PromptLayout, pattern: HeadPattern, data: st.DataObject
) -> None:
    """With the lines that an input gave, a later token's states can't reach an earlier query."""
    states = row(layout)
    moved = data.draw(st.sampled_from(real(layout)[1:]))
    todo = list(jobs(states, layout, [pattern]))
    other = States(states.queries.clone(), states.keys.clone(), states.values.clone(), states.scale)
    for changed in (other.queries, other.keys, other.values):
        changed[:, moved] += 3.0
    before, after = Partial.empty(states), Partial.empty(states)
    for job in todo:
        for source, into in ((states, before), (other, after)):
            Reference().attend(source, job.plane, job.index, job.heads, into)
    assert torch.equal(before.output[:, :moved], after.output[:, :moved])
    assert not torch.equal(before.output[:, moved], after.output[:, moved])


@given(layouts, bounded)
def test_padding_is_neither_read_nor_written(layout: PromptLayout, pattern: HeadPattern) -> None:
    states = row(layout)
    padding = layout.modality < 0
    poisoned = [part.clone() for part in (states.queries, states.keys, states.values)]
    for part in poisoned:
        part[:, padding] = torch.nan
    made = sparse_attention(States(*poisoned, states.scale), layout, [pattern], Reference())
    assert not made.output.isnan().any()
    assert not made.output[:, padding].any()


MIXED = PromptLayout.spans(
    ("padding", 5), ("text", 30), ("video", 300), ("text", 41), ("video", 170), frame=17
)
PLANES = {
    "whole": whole(PromptLayout.text(517)),
    "padded": whole(MIXED),
    "query": plane_of(MIXED, "video"),
    "pair": plane_of(MIXED, "text:video"),
    "blind": plane_of(MIXED, "video:text"),
    "one": whole(PromptLayout.text(1)),
}


@pytest.mark.parametrize("name", PLANES)
def test_line_pairs_are_counted_singly(name: str) -> None:
    plane, generator = PLANES[name], torch.Generator().manual_seed(2)
    keys = len(plane.keys)

    def some(count: int) -> torch.Tensor:
        return torch.randperm(keys, generator=generator)[:count]

    vertical, slash = [some(0), some(9), some(40), some(3)], [some(1), some(7), some(0), some(60)]
    vertical[3] = torch.cat([vertical[3]] * 2)  # a column that is named twice is seen once
    for block in (8, 64):
        index = LineIndex.build(plane, vertical, slash, [0, 0, 5, 10_000], block)
        seen = [int(index.seen(head, plane).sum()) for head in range(4)]
        assert index.pairs(plane).tolist() == seen
        expected = torch.tensor(seen, dtype=torch.double) / max(plane.pairs, 1)
        torch.testing.assert_close(share(index, plane), expected)


@pytest.mark.parametrize("name", PLANES)
def test_block_pairs_are_counted_singly(name: str) -> None:
    plane, generator = PLANES[name], torch.Generator().manual_seed(2)
    count = -(-len(plane.keys) // 16)
    marks = (torch.rand(3, count, count, generator=generator) < 0.4).tril(-1)
    index = BlockIndex.of(marks | torch.eye(count, dtype=torch.bool), (16, 64, 128))
    assert index.pairs(plane).tolist() == [int(index.seen(h, plane).sum()) for h in range(3)]
    frontier = plane.frontier[plane.blind :]
    nearest = torch.arange(plane.blind, len(plane.queries)), frontier
    assert all(bool(index.seen(head, plane)[nearest].all()) for head in range(3))


@pytest.mark.parametrize(("sink", "bottom"), [(0, 0), (20, 0), (0, 40)])
def test_blocks_are_the_fewest_that_hold_the_threshold(sink: int, bottom: int) -> None:
    """With every query in the estimate, it is the attention itself, block by block."""
    layout, size = PromptLayout.text(150), 16
    states, plane = row(layout, 2), whole(layout)
    (job,) = jobs(states, layout, [BlockTopP(0.8, size, 1, sink, 0.0, bottom)] * 2)
    for head in range(2):
        scores = states.queries[head] @ states.keys[head].T * states.scale
        later = torch.ones(150, 150, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(later, -torch.inf).softmax(1)
        seen = job.index.seen(head, plane)
        for first in range(0, 150, size):
            mass = [float(p.sum()) for p in weights[first : first + size].split(size, 1)]
            marks = [bool(s[-1, 0]) for s in seen[first : first + size].split(size, 1)]
            number, total = first // size, sum(mass)
            if bottom and number >= (150 - bottom) // size:
                assert marks == [place <= number for place in range(len(marks))]
                continue
            forced = {number, *range(-(-sink // size))} & set(range(number + 1))
            rest = sorted((mass[n] for n in range(number) if n not in forced), reverse=True)
            weight = sum(mass[n] for n in forced)
            count = 0
            while weight < 0.8 * total:
                weight, count = weight + rest[count], count + 1
            assert {n for n, mark in enumerate(marks) if mark} >= forced
            assert sum(marks) == len(forced) + count
            assert sum(m for m, mark in zip(mass, marks, strict=True) if mark) == pytest.approx(
                weight
            )


def test_heads_that_share_keys_choose_blocks_together_by_their_mean() -> None:
    """With a threshold of one the floor alone decides; the fifth head has a pattern of its own."""
    layout, alike = PromptLayout.text(96), BlockTopP(1.0, 16, 1, 0, 0.1, 0)
    states, plane = row(layout, 6), whole(layout)
    states = replace(states, keys=states.keys[:2], values=states.values[:2])
    made = [alike] * 4 + [replace(alike, floor=0.3), alike]
    (job,) = jobs(states, layout, made)
    scores = states.queries @ states.keys.repeat_interleave(3, 0).mT * states.scale
    weights = scores.masked_fill(~torch.ones(96, 96).tril().bool(), -torch.inf).softmax(2)
    mass = weights.view(6, 6, 16, 6, 16).mean(2).sum(3)
    diagonal = torch.eye(6, dtype=torch.bool)
    for heads, floor in (((0, 1, 2), 0.1), ((3, 5), 0.1), ((4,), 0.3)):
        expected = (mass[list(heads)].mean(0) > floor) | diagonal
        for head in heads:
            seen = job.index.seen(head, plane)[15::16, ::16]
            assert torch.equal(seen, expected)


def grid(plane: Plane, *values: tuple) -> GridIndex:
    return GridIndex(*(torch.tensor(column) for column in zip(*values, strict=True)))


@given(
    st.sampled_from(list(PLANES)), st.integers(1, 90), st.integers(0, 89),
    st.tuples(*[st.booleans()] * 3), st.integers(0, 700), st.integers(1, 90),
)  # fmt: skip
def test_grid_pairs_are_counted_singly(
    name: str, stride: int, phase: int, flags: tuple[bool, ...], sink: int, local: int
) -> None:
    plane = PLANES[name]
    index = grid(plane, (stride, phase % stride, *flags, sink, local))
    assert index.pairs(plane).tolist() == [int(index.seen(0, plane).sum())]


@pytest.mark.parametrize(("rule", "stride"), [("excess", 6), ("sum", 2)])
def test_a_stride_is_what_its_rule_says(rule: str, stride: int) -> None:
    """A short stride holds all lines of a longer one, and more that is none."""
    profiles = torch.full((1, 2, 120), 0.01, dtype=torch.float64)
    profiles[0, 0, 4::6] = 1.0
    spacing = Grid(slash=False, rule=rule).spacing(whole(PromptLayout.text(120)))  # type: ignore[arg-type]
    strides, rules = torch.tensor([[12, 6, 3, 2, 0]]), torch.tensor([spacing.rules])
    gains, choices = fold(profiles, None, torch.zeros(1, 3), strides, rules, 12)
    assert choices[:, 0, gains.argmax()].tolist() == [stride, 4 % stride]


def test_heads_that_are_probed_in_pieces_see_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    heads: list[HeadPattern] = [VerticalSlash(9, 70), QBoundary({"video": Grid(), "text": Grid(7)})]
    states = row(MIXED, 4)
    expected = list(jobs(states, MIXED, heads * 2))
    monkeypatch.setattr("sooner.sparse.probe.CACHED", 1 << 30)
    for job, other in zip(jobs(states, MIXED, heads * 2), expected, strict=True):
        assert torch.equal(job.heads, other.heads)
        for head in range(len(job.heads) if job.index is not None else 0):
            assert torch.equal(job.index.seen(head, job.plane), other.index.seen(head, other.plane))
