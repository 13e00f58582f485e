"""The reference against one softmax under one mask, and the CPU backend against the reference."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sooner.sparse.attention import Partial, Reference, States, sparse_attention
from sooner.sparse.attention.fused import Fused
from sooner.sparse.modality import PromptLayout
from sooner.sparse.pairs import BlockIndex, GridIndex, LineIndex
from sooner.sparse.patterns import (
    AShape,
    BlockTopP,
    Dense,
    Grid,
    HeadPattern,
    QBoundary,
    TwoDBoundary,
    VerticalSlash,
    pattern_from_dict,
)
from sooner.sparse.plane import Plane, plane_of, whole
from sparse_attention.contexts import mask_of, states

LAYOUTS = {
    "text": PromptLayout.text(150),
    "video": PromptLayout.spans(("text", 9), ("video", 160), ("text", 21), frame=16),
    "mixed": PromptLayout.spans(
        ("video", 64), ("text", 30), ("image", 25), ("video", 48), ("text", 17), frame=16
    ),
    "padded": PromptLayout.spans(
        ("padding", 7), ("text", 5), ("video", 96), ("padding", 11), frame=12
    ),
    "one": PromptLayout.text(1),
}
SHORT_PATTERNS: list[HeadPattern] = [
    Dense(),
    AShape(4, 70, bottom=9),
    VerticalSlash(10, 20),
    Grid("frame", hline=False),
    Grid("auto", max_stride=40, slash=False),
    Grid(7, 3, sink=2, local=5),
    Grid("frame", 0, hline=False, vline=False, local=16),
    QBoundary({"video": Grid("frame"), "text": VerticalSlash(5, 9)}),
    TwoDBoundary(
        {
            "video:video": Grid("frame", vline=False),
            "text:video": AShape(3, 8),
            "image:text": Grid(),
        }
    ),
    BlockTopP(0.4, 16, 5, bottom=20),
    TwoDBoundary(
        {"video:video": BlockTopP(0.3, 32, bottom=0), "text:video": BlockTopP(0.6, 16, 3, 0)}
    ),
]


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_parts_add_up_to_a_softmax_under_the_pattern_s_mask(layout: PromptLayout) -> None:
    row = states(len(layout), 2 * ((len(SHORT_PATTERNS) + 1) // 2), 2)
    patterns = [*SHORT_PATTERNS, Dense()][: len(row.queries)]
    made = sparse_attention(row, layout, patterns, Reference())
    for head, pattern in enumerate(patterns):
        queries, keys = row.queries[head], row.keys[head // row.group]
        mask = mask_of(pattern, layout, queries, keys, row.scale)
        scores = (queries @ keys.T * row.scale).masked_fill(~mask, -torch.inf)
        expected = scores.softmax(1).nan_to_num(0) @ row.values[head // row.group]
        torch.testing.assert_close(made.output[head], expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(made.lse[head], scores.logsumexp(1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("pattern", SHORT_PATTERNS, ids=str)
def test_patterns_survive_their_plain_data(pattern: HeadPattern) -> None:
    again = pattern_from_dict(pattern.to_dict())
    assert again == pattern
    assert hash(again) == hash(pattern)


SPANS = st.lists(
    st.tuples(
        st.sampled_from(["text", "video", "image", "padding"]),
        st.one_of(st.integers(1, 9), st.integers(40, 150)),
    ),
    min_size=1,
    max_size=5,
)
LENGTHS = st.one_of(st.integers(1, 12), st.integers(60, 70), st.integers(13, 300))
HEADS = st.sampled_from([(1, 1), (2, 2), (4, 2), (6, 2), (3, 1)])


@st.composite
def layouts(draw: st.DrawFn) -> PromptLayout:
    """Plain text, or spans of modalities in any order, padding among them."""
    if draw(st.booleans()):
        return PromptLayout.text(draw(LENGTHS))
    return PromptLayout.spans(*draw(SPANS), frame=draw(st.sampled_from([0, 4, 16])))


@st.composite
def planes(draw: st.DrawFn) -> tuple[PromptLayout, Plane]:
    """A layout and one of its planes, of any of the three kinds."""
    layout = draw(layouts())
    kind = draw(st.sampled_from(["whole", "query", "pair"]))
    if kind == "whole" or not layout.present:
        return layout, whole(layout)
    query, key = (draw(st.sampled_from(layout.present)) for _ in range(2))
    return layout, plane_of(layout, query) if kind == "query" else plane_of(
        layout, f"{query}:{key}"
    )


@st.composite
def grids(draw: st.DrawFn, heads: int) -> GridIndex:
    """An entry for each head, in any combination of lines, and for any length."""
    flag, small = st.booleans(), st.one_of(st.just(0), st.integers(0, 90))
    entries = []
    for _ in range(heads):
        stride = draw(st.one_of(st.integers(1, 12), st.sampled_from([16, 64, 70, 128, 400])))
        lines = [draw(flag) for _ in range(3)]
        phase = draw(st.integers(0, stride - 1))
        entries.append([stride, phase, *lines, draw(small), max(draw(small), 1)])
    columns = [torch.tensor(column) for column in zip(*entries, strict=True)]
    return GridIndex(*columns)


@st.composite
def line_sets(draw: st.DrawFn, plane: Plane, heads: int) -> LineIndex:
    """Lines of each head, anywhere in the plane."""
    rank = st.integers(0, max(len(plane.keys) - 1, 0))
    drawn = st.lists(rank, max_size=12, unique=True) if len(plane.keys) else st.just([])
    vertical, slash = (
        [torch.tensor(draw(drawn), dtype=torch.long) for _ in range(heads)] for _ in range(2)
    )
    bottom = [draw(st.sampled_from([0, 0, 1, 40, 400])) for _ in range(heads)]
    return LineIndex.build(plane, vertical, slash, bottom, draw(st.sampled_from([8, 64])))


def same(made: Partial, expected: Partial) -> None:
    torch.testing.assert_close(made.lse, expected.lse, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(made.output, expected.output, rtol=1e-5, atol=1e-5)


@st.composite
def block_sets(draw: st.DrawFn, plane: Plane, heads: int) -> BlockIndex:
    """Any blocks before the own one, of one size or several."""
    sizes = draw(st.lists(st.sampled_from([16, 32, 64]), min_size=heads, max_size=heads))
    count = -(-len(plane.keys) // min(sizes))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    marks = torch.rand(heads, count, count, generator=generator) < draw(
        st.sampled_from([0, 0.4, 1])
    )
    return BlockIndex.of(marks.tril(-1) | torch.eye(count, dtype=torch.bool), tuple(sizes))


@pytest.mark.parametrize("kind", ["grid", "lines", "blocks"])
@given(data=st.data())
def test_backends_compute_exactly_the_pairs_of_an_index(kind: str, data: st.DataObject) -> None:
    layout, plane = data.draw(planes())
    heads, kv_heads = data.draw(HEADS)
    row, picked = states(len(layout), heads, kv_heads), torch.arange(heads)
    if kind == "grid":
        index = data.draw(grids(heads))
    else:
        index = data.draw((line_sets if kind == "lines" else block_sets)(plane, heads))
    made, expected = Partial.empty(row), Partial.empty(row)
    Fused().attend(row, plane, index, picked, made)
    Reference().attend(row, plane, index, picked, expected)
    same(made, expected)


PATTERNS: list[HeadPattern] = [
    Dense(),
    AShape(40, 500),
    VerticalSlash(60, 80),
    Grid("frame"),
    Grid("auto", hline=False),
    Grid(3, 1),
    Grid(1, 0),
    Grid(300, 7, slash=False, sink=20, local=90),
    Grid("frame", 0, hline=False, vline=False, local=16),
    QBoundary({"video": Grid("frame"), "text": VerticalSlash(50, 90)}),
    TwoDBoundary(
        {
            "video:video": Grid("frame", vline=False),
            "text:video": AShape(30, 80),
            "video:text": Grid(2, 1),
        }
    ),
    BlockTopP(0.6, bottom=0),
    QBoundary({"video": BlockTopP(0.5, 32, bottom=9), "text": BlockTopP(0.7, 16, 4, bottom=0)}),
]


@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
def test_padding_of_nan_touches_nothing(pattern: HeadPattern) -> None:
    layout = PromptLayout.spans(
        ("padding", 3), ("text", 20), ("video", 160), ("padding", 9), ("text", 70), frame=16
    )
    row = states(len(layout), 2, 1)
    made = sparse_attention(row, layout, [pattern] * 2, Fused())
    for part in (row.queries, row.keys, row.values):
        part[:, layout.modality < 0] = torch.nan
    poisoned = sparse_attention(row, layout, [pattern] * 2, Fused())
    assert torch.equal(poisoned.output, made.output)
    assert torch.equal(poisoned.lse, made.lse)
    assert not made.output[:, layout.modality < 0].any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
def test_half_precision_errs_no_more_than_twice_as_much_as_torch(
    pattern: HeadPattern, dtype: torch.dtype
) -> None:
    layout = PromptLayout.spans(("text", 20), ("video", 480), ("text", 30), frame=16)
    row = states(len(layout), 2, 2, width=64, dtype=dtype, scale=64**-0.5)
    both = zip(row.queries, row.keys, strict=True)
    mask = torch.stack([mask_of(pattern, layout, *pair, row.scale) for pair in both])
    queries, keys, values = (x.double() for x in (row.queries, row.keys, row.values))
    scores = (queries @ keys.mT * row.scale).masked_fill(~mask, -torch.inf)
    expected = scores.softmax(-1) @ values
    torchs = torch.nn.functional.scaled_dot_product_attention(
        row.queries[None], row.keys[None], row.values[None], mask[None], enable_gqa=True
    )[0]
    made = sparse_attention(row, layout, [pattern] * 2, Fused()).output.to(dtype)
    assert (made - expected).abs().max() <= 2 * (torchs - expected).abs().max()


@pytest.mark.parametrize("turn", ["double", "stride"])
def test_what_the_kernel_does_not_take_goes_to_the_reference(turn: str) -> None:
    row, layout = states(90, 2, 1), PromptLayout.text(90)
    parts = [row.queries, row.keys, row.values]
    if turn == "double":
        other = States(*(x.double() for x in parts), row.scale)
    else:
        other = States(*(x.mT.contiguous().mT for x in parts), row.scale)
    made = sparse_attention(other, layout, [Grid(), AShape(3, 9)], Fused())
    made = Partial(made.output.float(), made.lse)
    same(made, sparse_attention(row, layout, [Grid(), AShape(3, 9)], Fused()))
