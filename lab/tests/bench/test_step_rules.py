"""Judging is a function of device tensors: it never waits, and is one graph of one shape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from sooner.engine.acceptance import (
    Guess,
    VerifyResult,
    follow,
    follow_choices,
    follow_shared_noise,
    reject_chain,
    reject_tree,
)
from sooner.engine.noise import Purpose, RowNoise
from sooner.engine.row_sampling import History, RowSampling
from sooner.engine.rows import cut_rows
from sooner.engine.sampling import Processing, pick
from sooner.engine.tree import Paths, Tree
from sooner.methods.aligned.method import follow_threshold
from sooner.methods.jacobi.couplings import COUPLINGS, Draws, weakened
from sooner.methods.tolerance import Tolerance
from sooner.models.openvla.statistics import ActionTokens
from sooner_lab.bench.step.guard import NoWaiting, fake_cuda

ROWS, NODES, VOCAB = 3, 4, 32
BUSH = [-1, -1, 0, 1]
GREEDY, DRAWN = Processing(), Processing(do_sample=True)
ACTIONS = Tolerance(ActionTokens(VOCAB, 16), 3, 2)


def tree(parents: list[int], probs: Tensor | None = None) -> Tree:
    """Returns one shape in every row, with sizes that differ; made of device operations
    alone.
    """
    line = torch.arange(NODES)
    above = torch.stack([torch.full((), parent, dtype=torch.long) for parent in parents])
    sizes = NODES - torch.arange(ROWS)
    tokens = (3 * line + torch.arange(ROWS)[:, None]) % VOCAB
    is_chain = parents == list(range(-1, NODES - 1))
    return Tree(tokens, above.expand(ROWS, -1), sizes, probs, is_chain)


def inputs() -> tuple[Tensor, Tensor, RowNoise]:
    """Scores, a draft's distributions, and random numbers."""
    scores = torch.cos(torch.arange(ROWS * (1 + NODES) * VOCAB) ** 1.3).view(ROWS, -1, VOCAB)
    q = (2 * scores.roll(1, -1)).softmax(-1)
    return scores, q, RowNoise.start(7, torch.arange(ROWS))


Step = Callable[[Tensor, Tensor, RowNoise], Any]
CHAIN = [-1, 0, 1, 2]


def _verdict(rule: Any, parents: list[int], processing: Processing) -> Step:
    return lambda scores, q, noise: _parts(rule(tree(parents, q), scores, processing, noise))


def _parts(verdict: VerifyResult) -> tuple[Tensor, ...]:
    return verdict.path, verdict.accepted, verdict.bonus


def _judged(parents: list[int]) -> Step:
    def step(scores: Tensor, q: Tensor, noise: RowNoise) -> Any:
        radii = torch.arange(3) % 2 + 1
        verified = ACTIONS.verify(tree(parents), scores.argmax(-1), noise.places, radii)
        return *_parts(verified.verdict), verified.dims, verified.distance

    return step


def _guessed(scores: Tensor, q: Tensor, noise: RowNoise) -> Any:
    guess = Guess(torch.arange(ROWS), q[:, 1], torch.arange(ROWS) > 0)
    return _parts(reject_chain(tree(CHAIN, q), scores.softmax(-1), noise, guess))


def _coupled(name: str, strength: float) -> Step:
    def step(scores: Tensor, q: Tensor, noise: RowNoise) -> Any:
        draws = Draws(noise, torch.arange(1 + NODES))
        x = torch.arange(1 + NODES).expand(ROWS, -1)
        return weakened(COUPLINGS[name], strength)(scores.softmax(-1), q, x, draws)

    return step


def _cut(scores: Tensor, q: Tensor, noise: RowNoise) -> Any:
    verdict = follow(tree(CHAIN), scores.argmax(-1))
    stop_ids = torch.arange(4).expand(ROWS, -1)
    return cut_rows(tree(CHAIN).tokens, verdict.accepted, verdict.bonus, stop_ids, noise.places + 2)


def _sampled(scores: Tensor, q: Tensor, noise: RowNoise) -> Any:
    """Rows with every setting there is; a step that was made for them waits for nothing."""
    some = torch.arange(1, 1 + ROWS).float()
    ids = torch.arange(2 * ROWS).view(ROWS, 2)
    sampling = RowSampling(
        greedy=some > 2, reads=some > 1, temperature=some, top_k=some.long(), maximum=ROWS,
        tail=some / 8, min_p=some / 8, repetition=some, presence=some, frequency=some, bias_ids=ids,
        bias_values=ids.float(),
    )  # fmt: skip
    seen = torch.zeros(ROWS, VOCAB, dtype=torch.bool)
    history = History(seen, seen.int())
    history.count(ids, some.long() - 1)
    paths = Paths.of(tree(BUSH))
    return sampling.warp(sampling.penalise(scores, history, paths), scores, paths)


def _numbers(scores: Tensor, q: Tensor, noise: RowNoise) -> Any:
    line = torch.arange(ROWS)
    later = RowNoise(noise.seeds, noise.places + line).select_rows(line)
    drawn = pick(q, later.uniforms(Purpose.DRAFT, torch.arange(1 + NODES), is_fresh=True))
    return drawn, later.waiting(Purpose.GUMBEL, 2, VOCAB), DRAWN.broken(scores), GREEDY.broken(q)


def _tree_parts(scores: Tensor, q: Tensor, noise: RowNoise) -> Any:
    drafted = tree(BUSH, q)
    chosen = drafted.select_rows(torch.arange(2))
    return drafted.valid(), drafted.ancestors(), drafted.depths(), drafted.levels(), chosen.sizes


STEPS: dict[str, Step] = {
    "follow chain, greedy": _verdict(follow_choices, CHAIN, GREEDY),
    "follow chain, drawn": _verdict(follow_choices, CHAIN, DRAWN),
    "follow tree, greedy": _verdict(follow_choices, BUSH, GREEDY),
    "follow tree, drawn": _verdict(follow_choices, BUSH, DRAWN),
    "follow shared noise": _verdict(follow_shared_noise, CHAIN, DRAWN),
    "follow threshold": _verdict(follow_threshold(0.7), BUSH, DRAWN),
    "reject chain": lambda scores, q, noise: _parts(
        reject_chain(tree(CHAIN, q), scores.softmax(-1), noise)
    ),
    "reject chain with a guess": _guessed,
    "reject tree": lambda scores, q, noise: _parts(
        reject_tree(tree(BUSH, q), scores.softmax(-1), noise)
    ),
    "tolerance, chain": _judged(CHAIN),
    "tolerance, tree": _judged(BUSH),
    "cut rows": _cut,
    "row sampling": _sampled,
    "numbers": _numbers,
    "tree": _tree_parts,
    **{f"coupling {name}": _coupled(name, 1.0) for name in COUPLINGS},
    "coupling in part": _coupled("maximal", 0.5),
}


@pytest.mark.parametrize("name", STEPS)
def test_judging_never_waits(name: str) -> None:
    with fake_cuda():
        arguments = inputs()
        with NoWaiting():
            STEPS[name](*arguments)


@pytest.mark.parametrize("name", STEPS)
def test_verification_is_a_single_graph_with_the_same_result(name: str) -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(STEPS[name], fullgraph=True, dynamic=False, backend="aot_eager")
    scores, q, noise = inputs()
    for shift in range(2):
        arguments = scores.roll(shift, 0), q, replace(noise, places=noise.places + shift)
        expected, actual = STEPS[name](*arguments), compiled(*arguments)
        torch.testing.assert_close(actual, expected, rtol=0, atol=0)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
