"""Relaxed acceptance against a plain loop, and its deviation against what it let through."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import sooner
import tiny
from methods.doors import generate
from sooner.engine.acceptance import follow_choices
from sooner.engine.noise import RowNoise
from sooner.engine.rows import Rows, Stopping
from sooner.engine.sampling import Processing
from sooner.engine.stats.run import EXACT, RELAXED, Stats
from sooner.engine.tree import Tree
from sooner.errors import SoonerError
from sooner.methods.sd_tree import STATIC_TREE
from sooner.methods.tolerance import Relaxed, Tolerance
from sooner.models.openvla.statistics import ActionStatistics, ActionTokens

TOKENS = ActionTokens(vocab_size=40, edges=16)
"""Actions are the ids 24 to 39; id 39 is bin 0."""
WORDS = 24


def literal(
    tokens: list[int],
    parents: list[int],
    choices: list[int],
    generated: int,
    radii: tuple[int, ...],
) -> tuple[list[int], int, list[int]]:
    """Path, bonus and distances by walking every path, one node at a time."""
    best: tuple[tuple[int, int, int], list[int], list[int]] = ((0, 0, 0), [], [])
    reached: dict[int, tuple[list[int], list[int]]] = {-1: ([], [])}
    for node, (token, parent) in enumerate(zip(tokens, parents, strict=True)):
        if parent not in reached:
            continue
        path, apart = reached[parent]
        choice = choices[parent + 1]
        r = radii[(generated + len(path)) % len(radii)]
        actions = token >= WORDS and choice >= WORDS
        distance = choice - token if actions else 0  # ids fall as bins rise
        if token != choice and not (actions and abs(distance) <= r):
            continue
        reached[node] = [*path, node], [*apart, distance]
        key = (-len(path) - 1, sum(map(abs, reached[node][1])), node)
        if key < best[0]:
            best = (key, *reached[node])
    _, path, apart = best
    return path, choices[path[-1] + 1 if path else 0], apart


@st.composite
def trees(draw: Any) -> tuple[list[int], list[int]]:
    """Parents before children, siblings distinct."""
    size = draw(st.integers(0, 9))
    tokens: list[int] = []
    parents: list[int] = []
    for node in range(size):
        parent = draw(st.integers(-1, node - 1))
        siblings = {t for t, p in zip(tokens, parents, strict=True) if p == parent}
        tokens.append(
            draw(st.integers(20, 39).filter(lambda t, siblings=siblings: t not in siblings))
        )
        parents.append(parent)
    return tokens, parents


@st.composite
def rounds(draw: Any) -> tuple[list[list[int]], list[list[int]], list[list[int]], list[int], Any]:
    """Rows of trees, the target's choices near to what is drafted, and what was said before."""
    drawn = draw(st.lists(trees(), min_size=1, max_size=3))
    choices = []
    for tokens, parents in drawn:
        entries = []
        for entry in range(len(tokens) + 1):
            children = [t for t, p in zip(tokens, parents, strict=True) if p == entry - 1]
            near = draw(st.sampled_from(children)) if children else 30
            entries.append(min(max(near + draw(st.integers(-3, 3)), 20), 39))
        choices.append(entries)
    generated = draw(st.lists(st.integers(0, 9), min_size=len(drawn), max_size=len(drawn)))
    radii = tuple(draw(st.lists(st.integers(0, 4), min_size=1, max_size=4)))
    return [t for t, _ in drawn], [p for _, p in drawn], choices, generated, radii


def padded(lists: list[list[int]]) -> torch.Tensor:
    width = max(len(values) for values in lists)
    return torch.tensor([values + [0] * (width - len(values)) for values in lists])


def verify(tolerance: Tolerance, tree: Tree, choices: torch.Tensor, generated: list[int]) -> Any:
    return tolerance.verify(tree, choices, torch.tensor(generated), torch.tensor(tolerance.radii))


@given(rounds())
def test_the_rule_is_the_loop(case: Any) -> None:
    tokens, parents, choices, generated, radii = case
    tree = Tree.from_lists(tokens, parents)
    verified = verify(Tolerance(TOKENS, len(radii), radii), tree, padded(choices), generated)
    for row in range(tree.rows):
        path, bonus, apart = literal(tokens[row], parents[row], choices[row], generated[row], radii)
        count = int(verified.verdict.accepted[row])
        assert verified.verdict.path[row, :count].tolist() == [1 + node for node in path]
        assert int(verified.verdict.bonus[row]) == bonus
        assert verified.distance[row, :count].tolist() == apart
        steps = [(generated[row] + step) % len(radii) for step in range(count)]
        assert verified.dims[row, :count].tolist() == steps


@pytest.mark.parametrize(
    ("token", "choice", "accepted"),
    [(23, 24, 0), (24, 23, 0), (23, 22, 0), (23, 23, 1), (24, 25, 1), (39, 39, 1)],
)
def test_ids_that_are_no_action_pass_only_when_equal(
    token: int, choice: int, accepted: int
) -> None:
    tree = Tree.from_lists([[token]], [[-1]])
    tolerance = Tolerance(TOKENS, 3, 9, gripper=None)
    result = verify(tolerance, tree, torch.tensor([[choice, 30]]), [0])
    assert int(result.verdict.accepted[0]) == accepted


def context(rows: int, limit: int, do_sample: bool = False) -> Any:
    """What a rule asks of a run's context."""
    stopping = Stopping(limit)
    return SimpleNamespace(
        target=SimpleNamespace(vocab_size=44, device=torch.device("cpu")),
        rows=Rows(torch.empty(rows, 0, dtype=torch.long)),
        stopping=stopping,
        stats=Stats(rows=rows),
        processing=Processing(do_sample=do_sample),
    )


def noise_of(here: Any) -> RowNoise:
    """Returns the noise of the rows that still decode."""
    places = [len(here.rows.output(row)) for row in range(len(here.rows.active))]
    noise = RowNoise.start(0, torch.tensor(here.rows.active))
    return replace(noise, places=noise.places + torch.tensor(places))


def scores_of(choices: list[list[int]]) -> torch.Tensor:
    return torch.nn.functional.one_hot(torch.tensor(choices), 44).float() * 60


def test_the_deviation_is_recorded_by_row_and_dimension() -> None:
    here = context(rows=3, limit=4)
    here.rows.active = [0, 2]
    here.rows.generated[2] = [30, 30]
    rule = Tolerance(TOKENS, 3, 2).rule(here)
    tree = Tree.from_lists([[31, 28], [30, 33]], [[-1, 0], [-1, 0]])
    verdict = rule(tree, scores_of([[30, 30, 30], [30, 32, 31]]), here.processing, noise_of(here))
    assert verdict.accepted.tolist() == [2, 2]
    deviation = here.stats.deviation
    # Row 0: id 31 for 30 is one bin lower, 28 for 30 two higher; row 2 goes on at the gripper.
    np.testing.assert_array_equal(deviation.of(0).mean, [1, 2, 0])
    np.testing.assert_array_equal(deviation.of(0).bias, [-1, 2, 0])
    np.testing.assert_array_equal(deviation.of(1).accepted, [0, 0, 0])
    np.testing.assert_array_equal(deviation.of(2).accepted, [1, 0, 1])
    np.testing.assert_array_equal(deviation.mean, [1, 2, 0])
    np.testing.assert_array_equal(deviation.largest, [1, 2, 0])
    assert here.stats.as_dict()["deviation"]["max"] == [1, 2, 0]


def test_tokens_after_the_end_of_a_row_are_not_counted() -> None:
    here = context(rows=1, limit=1)
    rule = Tolerance(TOKENS, 3, 2).rule(here)
    rule(
        Tree.from_lists([[31, 29]], [[-1, 0]]),
        scores_of([[30, 30, 30]]),
        here.processing,
        noise_of(here),
    )
    assert here.stats.deviation.accepted.tolist() == [1, 0, 0]


def test_only_a_tolerance_makes_a_run_relaxed() -> None:
    exact, relaxed = context(1, 4), context(1, 4)
    assert Tolerance(TOKENS, 3, 0).rule(exact) is follow_choices
    assert (exact.stats.mode, exact.stats.deviation) == (EXACT, None)
    Tolerance(TOKENS, 3, 1).rule(relaxed)
    assert relaxed.stats.mode == RELAXED


def test_under_sampling_a_draft_is_compared_with_the_draw() -> None:
    """Draws are 30 or 36, evenly; a draft of 31 passes exactly beside a 30."""
    here = context(rows=400, limit=4, do_sample=True)
    rule = Tolerance(TOKENS, 3, 1).rule(here)
    scores = torch.full((400, 2, 44), -60.0)
    scores[..., [30, 36]] = 0.0
    tree = Tree.from_lists([[31]] * 400, [[-1]] * 400)
    verdict = rule(tree, scores, here.processing, noise_of(here))
    accepted = verdict.accepted == 1
    assert 140 < int(accepted.sum()) < 260
    assert set(verdict.bonus[~accepted].tolist()) == {36}
    assert set(verdict.bonus[accepted].tolist()) == {30, 36}
    assert here.stats.deviation.mean.tolist() == [1, 0, 0]


@pytest.mark.parametrize(
    "drafted",
    [lambda draft: sooner.Speculative(draft, 3), lambda draft: sooner.SDTree(draft, STATIC_TREE)],
    ids=["chain", "tree"],
)
def test_more_tolerance_accepts_more_and_none_is_exact(drafted: Any) -> None:
    method, tokens = drafted(tiny.noisy("llama", 0.3)), ActionTokens(tiny.VOCAB, 40)
    strict, none, relaxed = (
        generate("llama", decoder, "text", 3, 24)
        for decoder in (
            method,
            Relaxed(method, Tolerance(tokens, 3, 0)),
            Relaxed(method, Tolerance(tokens, 3, 4)),
        )
    )
    assert none.tokens == strict.tokens
    assert (none.stats.mode, none.stats.deviation) == (EXACT, None)
    assert relaxed.stats.mode == RELAXED == Relaxed(method, Tolerance(tokens, 3, 4)).mode
    assert Relaxed(method, Tolerance(tokens, 3, 0)).mode == EXACT
    assert relaxed.stats.mean_acceptance_length > strict.stats.mean_acceptance_length
    deviation = relaxed.stats.deviation
    assert deviation is not None
    assert deviation.accepted.sum() == relaxed.stats.num_accepted_draft_tokens
    assert deviation.largest[:2].max() > 0
    assert deviation.largest[2] == 0  # the gripper


STATISTICS = ActionStatistics(
    "reach",
    q01=np.array([-0.05, -1.0, 0.3, 0.0]),
    q99=np.array([0.05, 2.0, 0.3, 1.0]),
    mask=np.array([True, True, True, False]),
)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bins": -1}, "tolerance is -1; it must be"),
        ({"bins": (1, 2, -3, 1)}, "tolerance is -3"),
        ({"bins": (1, 2, 3, 4, 5), "dims": 7}, "5 values, an action has 7 dimensions"),
        ({"bins": 1.5}, "tolerance is 1.5"),
        ({"bins": True}, "tolerance is True"),
        ({"gripper": 4}, "gripper is dimension 4, an action has 4"),
        ({"dims": 0}, "dims is 0"),
    ],
)
def test_what_is_no_tolerance_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SoonerError, match=message):
        Tolerance(TOKENS, **{"dims": 4, "bins": 1, **options})


@pytest.mark.parametrize(
    ("units", "message"),
    [((0.1,), "1 values, an action has 4"), ((-0.1, 0, 0, 0), "tolerance is -0.1; it must")],
)
def test_what_is_no_distance_is_refused(units: tuple[float, ...], message: str) -> None:
    with pytest.raises(SoonerError, match=message):
        Tolerance.physical(TOKENS, STATISTICS, units)


def test_a_target_without_these_tokens_is_refused() -> None:
    here = context(1, 4)
    here.target.vocab_size = 30
    with pytest.raises(SoonerError, match="actions end at id 39, the target has 30 ids"):
        Tolerance(TOKENS, 3, 1).rule(here)
