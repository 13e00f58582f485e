"""Rivals of MMInference by what a layer's heads see: static ones, MInference and FlexPrefill."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.special import xlogy

from sooner.sparse.attention import Backend, Partial, States
from sooner.sparse.attention.work import HeadGroup
from sooner.sparse.pairs import BlockIndex, Index, LineIndex
from sooner.sparse.plane import BLOCK, Plane
from sooner.sparse.probe import probe

from .patterns import static_index

Groups = list[HeadGroup]
Rival = Callable[[States, Plane], Callable[[float], Groups]]
"""Estimates what a layer attends to; returns what makes indices of a size, above 0 to 1."""
HeadKind = tuple[str, float, float]
"""What a head of MInference runs: `a-shape`, `lines` or `blocks`, and keys by rank and distance."""
KINDS: tuple[HeadKind, ...] = (
    ("a-shape", 100, 800), ("lines", 30, 800), ("lines", 100, 750), ("lines", 500, 700),
    ("lines", 3500, 100), ("lines", 1000, 6096), ("blocks", 0, 6400),
)  # fmt: skip
"""The search space of MInference's code."""
FIRST, NEAR, FEWEST = 30, 100, (30, 50)
"""Keys and distances that MInference always puts first, and the fewest lines that it takes."""
TAU, BUDGET = 0.1, 1024
"""FlexPrefill's threshold of the divergence, and the fewest tokens of its lines."""
STEPS = 14
"""Sizes that are tried for a number of pairs."""


def attend(states: States, groups: Groups, backend: Backend) -> Partial:
    """Return the attention of a layer whose heads have these indices."""
    into = Partial.empty(states)
    for group in groups:
        backend.attend(states, group.plane, group.index, group.heads, into)
    return into


def static(name: str, states: States, plane: Plane) -> Callable[[float], Groups]:
    """Size a static pattern, alike in all heads."""
    heads = torch.arange(len(states.queries), device=plane.keys.device)
    return lambda size: [
        HeadGroup(plane, heads, static_index(name, plane, size).take(heads * 0), 0)
    ]


def minference(
    kinds: Sequence[HeadKind], states: States, plane: Plane
) -> Callable[[float], Groups]:
    """Size MInference (Jiang et al. 2024), which knows no modalities; `kinds` are those of the
    heads, with the numbers of a size of 1.

    Lines hold most of the last 64 queries' attention, summed by key and by distance; blocks have
    the means of 64 queries and keys that agree most.
    """
    sums = probe(states.queries, states.keys, plane, states.scale).sums  # [heads, 2, keys]
    near = torch.arange(len(plane.keys), 0, -1.0, device=sums.device).expand_as(sums)
    for number, count in enumerate((FIRST, NEAR)):
        sums[:, number, :count] = 1e6 + near[:, number, :count]
    means = block_attention(states)

    def sized(size: float) -> Groups:
        groups = []
        for kind in sorted(set(kinds)):
            which = [head for head, each in enumerate(kinds) if each == kind]
            heads = torch.tensor(which, device=sums.device)
            name, vertical, slash = kind[0], round(size * kind[1]), round(size * kind[2])
            if name == "blocks":
                best = means[heads].topk(min(slash // BLOCK + 1, means.shape[2])).indices
                index: Index = block_mask(torch.zeros_like(means[heads]).scatter_(2, best, 1) > 0)
            else:
                index = window_lines((sums if name == "lines" else near)[heads], vertical, slash)
            groups.append(HeadGroup(plane, heads, index, BLOCK))
        return groups

    return sized


def search_kinds(
    states: States, plane: Plane, pairs: int, recall: Callable[[Groups], Tensor]
) -> list[HeadKind]:
    """Return the kind of each head with most `recall [heads]` if all compute `pairs` together, as
    MInference's code does, which looks at no output."""
    sizes, recalls = [], []
    for name, *numbers in KINDS:
        vertical, slash = (number * len(plane.keys) / max(numbers) for number in numbers)
        alike = [(name, vertical, slash)] * len(states.queries)
        sized = minference(alike, states, plane)
        size = tune(sized, pairs)
        sizes.append((name, vertical * size, slash * size, size))
        recalls.append(recall(sized(size)))
    most = max(size for *_, size in sizes)  # a size of 1 is as much of the largest as there is
    kinds = [(name, vertical / most, slash / most) for name, vertical, slash, _ in sizes]
    return [kinds[number] for number in torch.stack(recalls).argmax(0).tolist()]


def window_lines(profiles: Tensor, vertical: int, slash: int) -> LineIndex:
    """Return the lines that hold most of `profiles [heads, 2, keys]`, by key and by distance.

    Slash lines lie in the windows of MInference's kernel: 64 keys from a distance on. A line no
    further than 64 from the last window extends it by a whole one. Where a prompt begins, the
    kernel starts anew with the first line that is inside; here windows stay.
    """
    marks, keys = torch.zeros_like(profiles, dtype=torch.bool), profiles.shape[2]
    counts = (min(max(n, least), keys) for n, least in zip((vertical, slash), FEWEST, strict=True))
    lines, slashes = (p.topk(n).indices for p, n in zip(profiles.unbind(1), counts, strict=True))
    marks[:, 0].scatter_(1, lines, True)
    for mark, distances in zip(marks[:, 1], slashes.tolist(), strict=True):
        last = keys + 2 * BLOCK
        for apart in sorted(distances, reverse=True):
            if apart < last:
                last = apart if last - apart > BLOCK else last - BLOCK
                mark[max(last - BLOCK, 0) : max(last, 0)] = True
    return LineIndex(marks, slashes[:, 0] * 0, BLOCK, keys)


def flexprefill(states: States, plane: Plane) -> Callable[[float], Groups]:
    """Size FlexPrefill (Lai et al. 2025), with blocks of 64; the size is its gamma.

    A head whose block means predict what the last block of queries attends to (root of the
    Jensen-Shannon divergence below `TAU`) takes blocks of the whole map by their means, until they
    sum up to gamma. Others take vertical and slash blocks, each as many as cover gamma of the last
    queries' attention. All have at least `BUDGET` tokens of both, a thirty-second of short prompts.
    """
    sums = probe(states.queries, states.keys, plane, states.scale).sums
    sums /= min(BLOCK, len(plane.queries))
    query = states.queries[:, -BLOCK:].float().mean(1, keepdim=True)
    means = block_means(states.keys).repeat_interleave(states.group, 0)
    guess = (query @ means.mT * states.scale).softmax(2)[:, 0]  # [heads, blocks]
    truth = block_sums(sums[:, 0])
    apart = sum(xlogy(part, 2 * part / (guess + truth)).sum(1) for part in (guess, truth)) / 2
    is_aware = apart.clamp(min=0).sqrt() < TAU  # [heads]
    heads, count = torch.arange(len(sums), device=sums.device), guess.shape[1]
    rank, least = torch.arange(count, device=sums.device), min(BUDGET, len(plane.keys) // 32) - 1
    values, order = block_attention(states).flatten(1).sort(1, descending=True)
    covered = sums.sort(2, descending=True).values.cumsum(2)  # [heads, 2, keys]
    pooled = torch.stack([block_sums(part) for part in sums.unbind(1)], 1)
    pooled[..., 0] = torch.inf
    place = pooled.argsort(2, descending=True).argsort(2)  # [heads, 2, blocks]

    def sized(size: float) -> Groups:
        wanted = ((covered <= size).sum(2) + 1).masked_fill(is_aware[:, None], 0).clamp(min=least)
        vertical, slash = (place <= wanted[..., None] // BLOCK).unbind(1)
        mask = vertical[:, None] | slash[:, (rank[:, None] - rank).clamp(min=0)]
        chosen = (values.cumsum(1) <= size * count) & is_aware[:, None]
        mask |= torch.zeros_like(chosen).scatter_(1, order, chosen).view_as(mask)
        return [HeadGroup(plane, heads, block_mask(mask), BLOCK)]

    return sized


def block_sums(profile: Tensor) -> Tensor:
    """Return the sums of each block of `[rows, tokens, ...]`, `[rows, blocks, ...]`."""
    room = (0, 0) * (profile.dim() - 2) + (0, -profile.shape[1] % BLOCK)
    return pad(profile, room).unflatten(1, (-1, BLOCK)).sum(2)


def block_means(states: Tensor) -> Tensor:
    """Return the mean of each block of `[heads, tokens, head_dim]`, in fp32."""
    return block_sums(states.float()) / block_sums(torch.ones_like(states[:1, :, :1]).float())


def block_attention(states: States) -> Tensor:
    """Return causal attention among means of 64 queries and keys, `[heads, blocks, blocks]`."""
    keys = block_means(states.keys).repeat_interleave(states.group, 0)
    scores = block_means(states.queries) @ keys.mT * states.scale
    later = torch.ones_like(scores, dtype=torch.bool).triu(1)
    return scores.masked_fill(later, -torch.inf).softmax(2)


def block_mask(blocks: Tensor) -> BlockIndex:
    """Return the index of some blocks and of each block's own."""
    own = torch.eye(blocks.shape[1], device=blocks.device).bool()
    return BlockIndex.of((blocks | own).tril(), (BLOCK,) * len(blocks))


def count_pairs(groups: Groups) -> int:
    """Return how many query-key pairs heads compute, exactly."""
    return sum(int(group.pairs.sum()) for group in groups)


def tune(sized: Callable[[float], Groups], pairs: int) -> float:
    """Return the greatest size with which heads compute no more than `pairs` together."""
    return greatest(lambda size: count_pairs(sized(size)) <= pairs, STEPS)


def greatest(fits: Callable[[float], bool], steps: int) -> float:
    """Return the greatest of the sizes tried, from 0.0001 to 1, that fits; or else the least."""
    low, high = 1e-4, 1.0
    for _ in range(steps):
        size = (low * high) ** 0.5
        low, high = (size, high) if fits(size) else (low, size)
    return low
