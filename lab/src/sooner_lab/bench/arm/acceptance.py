"""Acceptance of several drafts on recorded moments of the target's own closed loops."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from sooner.methods import Method
from sooner.methods.eagle import Eagle, EagleHead
from sooner.methods.tolerance import Relaxed, Tolerance
from sooner.tasks.act.batch import decode
from sooner.tasks.act.policy import Policy, load

from ...worlds.arm import collect
from ...worlds.arm.gauges import ORDER, draw
from ...worlds.arm.rollouts import walk
from ...worlds.arm.simulator import NAMES, TASKS
from . import settings as fixed
from .drafts import ActionBigrams, Guess, GuessedAction, repeated
from .settings import ArmSettings

ROWS = 32
DEPTH = len(NAMES) - 2
"""Of a draft: the prefill says the first number, and a whole accepted draft leaves the last."""
CHAIN, TREE, PAPER = "chain", "tree", "paper's tree"
SHAPES = {
    CHAIN: {"nodes": DEPTH, "top_k": 1},
    TREE: {"nodes": 16, "top_k": 8},
    PAPER: {"nodes": 50, "top_k": 8},
}
"""Of the heads: a policy's own on a CPU, relaxed and strict; and Spec-VLA's table 4, which the
finished head alone drafts."""
WIDTHS = {CHAIN: (1,), TREE: (3,)}
"""Children of the levels of a tree of bigrams: three chains, 15 nodes."""
REPEAT, BIGRAM = "last action", "bigrams"


@dataclass(frozen=True)
class Moments:
    """What the target saw and said.

    Attributes:
        tasks, episodes: of each, `[moments]`.
        numbers: `[moments, NUMBERS]`.
        said, before: ids of its action, and of the one before it, `[moments, 7]`.
    """

    tasks: np.ndarray
    episodes: np.ndarray
    numbers: np.ndarray
    said: np.ndarray
    before: np.ndarray


@dataclass
class AcceptanceCount:
    """Rounds behind the first number, and the draft tokens that they accepted.

    Attributes:
        rounds, accepted: by episode.
        tried, hit: by place of the action; a draft is tried up to its first rejection.
        lengths: rounds that accepted 0, 1, ... draft tokens (table 2).
        begun, gained: rounds that began behind so many numbers and what they accepted; 0 is behind
            the first number, which the prefill says (table 3).
    """

    rounds: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    accepted: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    tried: list[int] = field(default_factory=lambda: [0] * len(NAMES))
    hit: list[int] = field(default_factory=lambda: [0] * len(NAMES))
    lengths: list[int] = field(default_factory=lambda: [0] * (DEPTH + 1))
    begun: list[int] = field(default_factory=lambda: [0] * (DEPTH + 1))
    gained: list[int] = field(default_factory=lambda: [0] * (DEPTH + 1))

    def listener(self, episodes: Sequence[int]) -> Callable[[int, list[int], int], None]:
        """An `on_tokens` callback for rows of these episodes."""
        said: dict[int, int] = defaultdict(int)

        def hear(row: int, new: list[int], drafted: int) -> None:
            place = said[row]
            said[row] += len(new)
            if place == 0:
                return
            self.rounds[episodes[row]] += 1
            self.accepted[episodes[row]] += drafted
            self.lengths[drafted] += 1
            self.begun[place - 1] += 1
            self.gained[place - 1] += drafted
            for one in range(place, place + drafted):
                self.tried[one] += 1
                self.hit[one] += 1
            if place + drafted < len(NAMES) - 1:  # the last number is never drafted
                self.tried[place + drafted] += 1

        return hear

    def told(self, is_chain: bool) -> dict[str, Any]:
        """For a result: `mean_acceptance_length`, a round's own token counted; `rounds` and
        `accepted`, a number for each episode; `lengths` in percent of the rounds; `positions`,
        draft tokens that a round accepted by where it began, `None` where none did; of chains
        `tried` and `hit`."""
        rounds, order = sum(self.lengths), sorted(self.rounds)
        found: dict[str, Any] = {
            "mean_acceptance_length": 1 + sum(self.gained) / rounds,
            "rounds": [self.rounds[one] for one in order],
            "accepted": [self.accepted[one] for one in order],
            "lengths": [100 * one / rounds for one in self.lengths],
            "positions": [
                gained / begun if begun else None
                for gained, begun in zip(self.gained, self.begun, strict=True)
            ],
        }
        return {**found, "tried": self.tried, "hit": self.hit} if is_chain else found


def record_moments(policy: Policy, progress: Callable[[str], None]) -> Moments:
    """Every third moment of plain closed loops, but the first ones."""
    found: dict[str, list[Any]] = defaultdict(list)
    for number, task in enumerate(ORDER):
        progress(f"recording moments of {task}")
        seeds = range(fixed.FIRST_MOMENT, fixed.FIRST_MOMENT + fixed.MOMENT_EPISODES)
        for one in walk(partial(policy.act, method="plain"), task, seeds):
            said = [answer.ids[0] for answer in one.answers]
            for at in range(1, len(said), fixed.EVERY):
                found["tasks"].append(number)
                found["episodes"].append(number * fixed.MOMENT_EPISODES + one.seed - seeds[0])
                found["numbers"].append(one.numbers[at])
                found["said"].append(said[at])
                found["before"].append(said[at - 1])
    return Moments(**{name: np.array(values) for name, values in found.items()})


def acceptance(settings: ArmSettings, progress: Callable[[str], None]) -> dict[str, Any]:
    """Counts of every draft, shape and rule.

    Returns:
        `moments`, how many; `arms`, a row each: `draft`, `shape`, `tolerance` (0 is strict);
        what `AcceptanceCount.told` says; `differing`, actions that are not those of HF's
        `generate`; `bins` by which axes are off them on average.
    """
    policy = load(str(settings.models / "target" / "checkpoint"), dtype="float32")
    moments = record_moments(policy, progress)
    exact = _by_hf(policy, moments)
    rows = []
    for draft, shape, tolerance, make in _arms(settings, policy):
        progress(f"{draft}, {shape}, r={tolerance}")
        count = AcceptanceCount()
        said = _decoded(policy, moments, make, count)
        off = np.abs(said - exact)[:, :-1]
        rows.append(
            {"draft": draft, "shape": shape, "tolerance": tolerance,
             **count.told(is_chain=shape == CHAIN),
             "differing": int((said != exact).any(1).sum()), "bins": float(off.mean())}
        )  # fmt: skip
    return {"moments": len(exact), "arms": rows}


Make = Callable[[np.ndarray], Method]
"""A method for a batch whose rows said these actions before, `[rows, 7]`."""


def _arms(settings: ArmSettings, policy: Policy) -> Iterator[tuple[str, str, int, Make]]:
    tokens, dims = policy.tokens, len(NAMES)
    bigrams = ActionBigrams(_demonstrated(settings, policy))
    legal = tuple(range(tokens.first_id, tokens.vocab_size))
    heads = {name: EagleHead.from_pretrained(settings.models / "head" / name).eval()
             for name in settings.heads}  # fmt: skip
    for tolerance in (0, *fixed.TOLERANCES):
        rule = Tolerance(tokens, dims, tolerance) if tolerance else None
        for shape, widths in WIDTHS.items():
            for name, head in heads.items():
                eagle = Eagle(head, tolerance=rule, depth=DEPTH, legal=legal, **SHAPES[shape])
                yield name, shape, tolerance, _always(eagle)
            drafted = _free(bigrams.guess(widths), widths[0] * DEPTH, rule)
            yield BIGRAM, shape, tolerance, _always(drafted)
        name = settings.heads[-1]
        eagle = Eagle(heads[name], tolerance=rule, depth=DEPTH, legal=legal, **SHAPES[PAPER])
        yield name, PAPER, tolerance, _always(eagle)
        yield REPEAT, CHAIN, tolerance, _repeating(rule)


def _always(method: Method) -> Make:
    return lambda before: method


def _repeating(rule: Tolerance | None) -> Make:
    return lambda before: _free(repeated(before), DEPTH, rule)


def _free(guess: Guess, nodes: int, rule: Tolerance | None) -> Method:
    drafted = GuessedAction(guess, nodes)
    return drafted if rule is None else Relaxed(drafted, rule)


def _demonstrated(settings: ArmSettings, policy: Policy) -> np.ndarray:
    """Ids of the demonstrations' actions, `[actions, 7]`."""
    told = collect.load(settings.models / "target" / "data")["actions"]
    return policy.tokens.encode(told.astype(np.float64))


def _inputs(policy: Policy, moments: Moments, rows: slice) -> dict[str, Any]:
    told = [TASKS[ORDER[task]].instruction for task in moments.tasks[rows]]
    return policy.processor(list(draw(moments.numbers[rows])), told)


def _batches(moments: Moments) -> Iterator[slice]:
    for at in range(0, len(moments.tasks), ROWS):
        yield slice(at, at + ROWS)


def _by_hf(policy: Policy, moments: Moments) -> np.ndarray:
    """What HF's own incremental `generate` says, `[moments, 7]`."""
    said = []
    for rows in _batches(moments):
        inputs = _inputs(policy, moments, rows)
        found = policy.model.generate(
            **inputs, max_new_tokens=len(NAMES), min_new_tokens=len(NAMES), do_sample=False
        )
        said.append(found[:, -len(NAMES) :].numpy())
    return np.concatenate(said)


def _decoded(policy: Policy, moments: Moments, make: Make, count: AcceptanceCount) -> np.ndarray:
    said = []
    for rows in _batches(moments):
        found = decode(
            policy.adapter,
            partial(_inputs, policy, moments, rows),
            make(moments.before[rows]),
            len(NAMES),
            on_tokens=count.listener(moments.episodes[rows].tolist()),
        )
        said.append(found.ids)
    return np.concatenate(said)
