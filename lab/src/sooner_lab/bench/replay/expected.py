"""What theory expects of each method, from measured forwards and the script.

A method's speed-up over plain decoding is

    tokens a round * T(1) / seconds of a round

with the tokens that the script's process gives, and the seconds of the forwards that a round has,
as they were measured on the same decoders. Nothing is charged for the host's work between them.

Tokens a round of one row are a closed form where every token is drawn alone:

- chains: Leviathan et al. 2023, eq. 1, `1 + a + ... + a^n`;
- trees: 1 + the expected path length;
- `prompt-lookup`: the chain of two states, *found* and *lost*: behind a token that the prompt's
  copy has wrongly nothing is found, and the round is plain;
- `jacobi`: a chain whose window holds `L - n` guesses behind a round that accepted `n`;
- `parallel`: ParallelVLM's lock-step rounds (`theory.renewal.parallel_time`), at one row, each as
  long as its drafting or its verification takes.

Where they are clustered, the same rounds walk along the script itself.

More rows are a closed batch: they begin together, and nobody takes the place of one that has ended,
so it lasts as long as its slowest row. There, too, every row walks along its own stretch of the
script, and a round costs what its forwards cost with the rows that are left.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from statistics import fmean
from typing import Any

from ...theory import Curve, StepCosts, parallel
from ...theory.speedup import expected_accepted
from .script import Script
from .settings import ReplaySettings
from .steps import ForwardTimes
from .trees import RankedTree

Cost = Callable[[ForwardTimes], float]
"""Seconds of forwards."""

DRAWN_BATCHES = 16
"""Batches that are drawn where every round draws its guesses anew."""


def draft_step(times: ForwardTimes) -> float:
    """A forward of the draft over a token of each row."""
    return times.draft(1)


def nothing(_: ForwardTimes) -> float:
    """What drafts cost that were made beforehand."""
    return 0.0


def target_step(entries: int) -> Cost:
    """A forward of the target over so many entries of each row."""
    return lambda times: times.target(entries)


@dataclass(frozen=True)
class Expectation:
    """What theory expects of an arm at a point.

    Attributes:
        speedup: over plain decoding.
        tokens: a round, the target's own included.
        draft_tokens: of a round, where the arm has a fixed number of them or theory the best.
    """

    speedup: float
    tokens: float
    draft_tokens: int | None = None

    def as_dict(self) -> dict[str, Any]:
        return {
            "expected_speedup": self.speedup,
            "expected_tokens_a_round": self.tokens,
            "expected_draft_tokens": self.draft_tokens,
        }


class Theory:
    """The theory of one point: a script, and what forwards cost in batches of so many rows.

    Args:
        script: where drafts are right.
        times: of forwards, by rows; those of `rows`, and of fewer for the end of a batch.
        settings: lengths and windows.
        rows: of the batch.
    """

    def __init__(
        self, script: Script, times: Mapping[int, ForwardTimes], settings: ReplaySettings, rows: int
    ) -> None:
        self.script, self.settings, self.rows = script, settings, rows
        self.times, self.by_rows = times[rows], times
        self.process = script.process

    def of(self, method: str) -> Expectation | None:
        """What is expected of a method; `None` of one that theory has nothing to say about."""
        settings = self.settings
        if method == "plain":
            return Expectation(1.0, 1.0, 0)
        if method == "speculative":
            return self.chain(settings.num_draft_tokens)
        if method in ("speculative-best", "speculative-auto"):
            return self.best_chain(settings.max_draft_tokens, may_rest=method != "speculative-best")
        if method == "hsd":
            return self.best_chain(settings.hsd_nodes, may_rest=True, draft=nothing)
        if method == "sd-tree":
            tree = static_tree()
            return self.tree(
                tree, lambda times: sum(map(times.draft, tree.sources)) + times.trees[method]
            )
        if method == "eagle" and self.times.head_level is not None:
            tree = RankedTree.dynamic(self.process, settings)
            return self.tree(
                tree,
                lambda times: len(tree.sources) * (times.head_level or 0) + times.trees[method],
            )
        if method == "prompt-lookup":
            return self.lookup(settings.lookup_tokens)
        if method == "jacobi":
            return self.jacobi(settings.jacobi_window)
        if method == "parallel" and self.rows == 1:
            return self.parallel(settings.max_draft_tokens)
        return None

    def chain(self, length: int, draft: Cost = draft_step) -> Expectation:
        """Turns of `length` draft forwards, of `draft` seconds each, and a verification."""
        return self.tree(
            RankedTree.chain(length), lambda times: length * draft(times) + times.target(1 + length)
        )

    def best_chain(self, maximum: int, may_rest: bool, draft: Cost = draft_step) -> Expectation:
        """The fastest of the lengths up to `maximum`.

        Args:
            may_rest: it may be plain decoding, too.
        """
        lengths = range(0 if may_rest else 1, maximum + 1)
        return max((self.chain(item, draft) for item in lengths), key=lambda item: item.speedup)

    def tree(self, tree: RankedTree, cost: Cost) -> Expectation:
        """Turns of drafting a tree and verifying it, which take `cost`."""
        if self.rows == 1:
            return self._speed(self._tokens(tree), cost(self.times), tree.nodes)
        ranks = self.script.ranks
        walks = self._walks(lambda place, _: tree.accepted(ranks, place))
        return self._closed([walks], lambda _: cost, tree.nodes)

    def lookup(self, length: int) -> Expectation:
        """Rounds behind a token that the copy has right verify `length` tokens, others none; a
        batch's do where any row's does."""
        a, verdicts = self.process.acceptance, self.script.agreement
        if self.rows > 1:
            walks = self._walks(
                lambda place, _: verdicts.at(place - 1) and min(verdicts.run_from(place), length)
            )
            return self._closed(
                [walks],
                lambda places: target_step(
                    1 + length * any(verdicts.at(item - 1) for item in places)
                ),
                length,
            )
        long, plain = self.times.target(1 + length), self.times.plain
        if self.process.correlation:
            place = 0
            rounds: list[tuple[int, float]] = []
            while place < len(verdicts.verdicts):
                is_right = verdicts.at(place - 1)
                good = min(verdicts.run_from(place), length) if is_right else 0
                rounds.append((good + 1, long if is_right else plain))
                place += good + 1
            tokens = sum(item for item, _ in rounds) / len(rounds)
            return self._speed(tokens, sum(each for _, each in rounds) / len(rounds), length)
        # A found round goes on as one where all of it and the token behind it are right; a lost one
        # where its own token is. `share` is that of found rounds.
        again = a ** (length + 1)
        share = a / (1 - again + a)
        tokens = share * (1 + expected_accepted(a, length)) + (1 - share)
        return self._speed(tokens, share * long + (1 - share) * plain, length)

    def jacobi(self, window: int) -> Expectation:
        """Rounds that look at `window` guesses, of which those behind the last window are filled in
        and wrong."""
        a, script = self.process.acceptance, self.script
        if self.rows > 1:
            draw = random.Random(self.settings.seed)

            def accepted(_: int, before: int) -> int:
                run = script.agreement.run_from(draw.randrange(len(script.used)))
                return min(run, window - before)

            # The first window holds no guess yet.
            batches = [self._walks(accepted, window) for _ in range(DRAWN_BATCHES)]
            return self._closed(batches, lambda _: target_step(1 + window), window)
        if self.process.correlation:
            good = rounds = total = place = 0
            while total < script.vocab:
                # Guesses of a round are a stretch of the script that no other round reads.
                good = min(script.agreement.run_from(place), window - good)
                total, rounds, place = total + good + 1, rounds + 1, place + 101
            tokens = total / rounds
        else:
            shares = [1.0] + [0.0] * window  # of rounds, by accepted tokens
            for _ in range(4 * window):
                after = [0.0] * (1 + window)
                for before, share in enumerate(shares):
                    room = window - before
                    for good in range(room):
                        after[good] += share * a**good * (1 - a)
                    after[room] += share * a**room
                shares = after
            tokens = 1 + sum(good * share for good, share in enumerate(shares))
        return self._speed(tokens, self.times.target(1 + window), window)

    def parallel(self, maximum: int) -> Expectation:
        """Lock-step rounds at the best window, each as long as a verification or its drafting."""
        step, plain = self.times.draft(1), self.times.plain
        a, vocab = self.process.acceptance, self.script.vocab

        def at(length: int) -> Expectation:
            if self.process.correlation:
                costs, seen = StepCosts(self.times.target, step), self.script.agreement
                ran = parallel(costs, seen, length, vocab, keep_events=False)
                return Expectation(ran.speedup, ran.mean_acceptance_length, length)
            # A cycle as in `renewal.parallel_time`: one round verifies nothing, others are full.
            first, later = (max(length * step, self.times.target(n)) for n in (1, length))
            rounds = a / (1 - a**length)
            cycle = first + rounds * later
            return Expectation(plain / ((1 - a) * cycle), 1 / ((1 - a) * (1 + rounds)), length)

        return max((at(item) for item in range(1, maximum + 1)), key=lambda item: item.speedup)

    def _tokens(self, tree: RankedTree) -> float:
        """Tokens a round: one of the target's own, and the accepted path."""
        if not self.process.correlation:
            return 1 + tree.expected(self.process.chances())
        ranks = self.script.used
        return walked(lambda place: tree.accepted(ranks, place), len(ranks))

    def _speed(self, tokens: float, seconds: float, length: int) -> Expectation:
        return Expectation(tokens * self.times.plain / seconds, tokens, length)

    def _walks(self, accepted: Callable[[int, int], int], before: int = 0) -> list[list[int]]:
        """Returns, for each row of a batch, the places where its rounds begin.

        Args:
            accepted: draft tokens of a round, by its place and what the round before accepted.
            before: what the first round takes for that.
        """
        walks, segment = [], self.script.segment
        for row in range(self.rows):
            place, end, last = (
                row * segment + 1,
                (row + 1) * segment,
                before,
            )  # behind the prefill's
            places = []
            while place < end:
                places.append(place)
                last = accepted(place, last)
                place += last + 1
            walks.append(places)
        return walks

    def _closed(
        self,
        batches: Sequence[Sequence[Sequence[int]]],
        cost: Callable[[Sequence[int]], Cost],
        length: int,
    ) -> Expectation:
        """A closed batch, or the mean of several.

        Args:
            batches: of each, what `_walks` gives.
            cost: of a round, by the places where the rows that are left begin it.
        """
        new_tokens = self.script.segment - 1
        seconds = 0.0
        for walks in batches:
            for together in zip_longest(*walks):
                places = [place for place in together if place is not None]
                seconds += self._seconds(cost(places), len(places))
        seconds /= len(batches)
        rounds = fmean(len(places) for walks in batches for places in walks)
        return Expectation(new_tokens * self.times.plain / seconds, new_tokens / rounds, length)

    def _seconds(self, cost: Cost, rows: int) -> float:
        """Returns the seconds of forwards over some rows, linear between numbers of rows that
        were measured.
        """
        return Curve.of({each: cost(times) for each, times in self.by_rows.items()})(rows)


def walked(accepted: Callable[[int], int], length: int) -> float:
    """Tokens a round of a walk over `length` places.

    Args:
        accepted: draft tokens of a round that begins at a place.
    """
    place = rounds = 0
    while place < length:
        place, rounds = place + accepted(place) + 1, rounds + 1
    return place / rounds


def static_tree() -> RankedTree:
    """The tree of `SDTree` by default."""
    from sooner.methods.tree_draft import STATIC_TREE, TreeShape

    return RankedTree.static(TreeShape(STATIC_TREE))
