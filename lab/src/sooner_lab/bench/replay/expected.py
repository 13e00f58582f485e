"""What theory expects of each method, from measured forwards and the script.

A method's speed-up over plain decoding is

    tokens a round * T(1) / seconds of a round

with the tokens that the script's process gives, and the seconds of the forwards that a round has,
as they were measured on the same decoders. Nothing is charged for the host's work between them, nor
for the fewer rows at a batch's end.

Tokens a round are a closed form where every token is drawn alone:

- chains: Leviathan et al. 2023, eq. 1, `1 + a + ... + a^n`;
- trees: 1 + the expected path length;
- `prompt-lookup`: the chain of two states, *found* and *lost*: behind a token that the prompt's
  copy has wrongly nothing is found, and the round is plain;
- `jacobi`: a chain whose window holds `L - n` guesses behind a round that accepted `n`;
- `parallel`: ParallelVLM's lock-step rounds (`theory.renewal.parallel_time`), at one row, each as
  long as its drafting or its verification takes.

Where they are clustered, the same rounds walk along the script itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...theory import StepCosts, parallel
from ...theory.speedup import expected_accepted
from .script import Script
from .settings import ReplaySettings
from .steps import ForwardTimes
from .trees import RankedTree


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
    """Of one point: a script, and what forwards cost in batches of so many rows.

    Args:
        script: where drafts are right.
        times: of forwards.
        settings: lengths and windows.
        rows: of the batch.
    """

    def __init__(
        self, script: Script, times: ForwardTimes, settings: ReplaySettings, rows: int
    ) -> None:
        self.script, self.times, self.settings, self.rows = script, times, settings, rows
        self.process = script.process

    def of(self, method: str, level: float | None = None) -> Expectation | None:
        """What is expected of a method; `None` of one that theory has nothing to say about.

        Args:
            level: seconds of a level of the tree of `eagle`'s head, as runs measured them.
        """
        settings, draft = self.settings, self.times.draft(1)
        if method == "plain":
            return Expectation(1.0, 1.0, 0)
        if method == "speculative":
            return self.chain(settings.num_draft_tokens, draft)
        if method in ("speculative-best", "speculative-auto"):
            return self.best_chain(settings.max_draft_tokens, draft, method == "speculative-auto")
        if method == "hsd":
            return self.best_chain(settings.hsd_nodes, 0.0, may_rest=True)
        if method == "sd-tree":
            tree = static_tree()
            return self.tree(method, tree, sum(map(self.times.draft, tree.sources)))
        if method == "eagle":
            tree = RankedTree.dynamic(self.process, settings)
            drafting = None if level is None else len(tree.sources) * level
            return None if drafting is None else self.tree(method, tree, drafting)
        if method == "prompt-lookup":
            return self.lookup(settings.lookup_tokens)
        if method == "jacobi":
            return self.jacobi(settings.jacobi_window)
        if method == "parallel" and self.rows == 1:
            return self.parallel(settings.max_draft_tokens)
        return None

    def chain(self, length: int, draft: float) -> Expectation:
        """Turns of `length` draft forwards and a verification."""
        tokens = self._tokens(RankedTree.chain(length))
        return self._speed(tokens, length * draft + self.times.target(1 + length), length)

    def best_chain(self, most: int, draft: float, may_rest: bool) -> Expectation:
        """The fastest of the lengths up to `most`.

        Args:
            may_rest: it may be plain decoding, too.
        """
        lengths = range(0 if may_rest else 1, most + 1)
        return max((self.chain(one, draft) for one in lengths), key=lambda one: one.speedup)

    def tree(self, method: str, tree: RankedTree, drafting: float) -> Expectation:
        """Turns of drafting a tree and verifying it."""
        seconds = drafting + self.times.trees[method]
        return self._speed(self._tokens(tree), seconds, tree.nodes)

    def lookup(self, length: int) -> Expectation:
        """Rounds behind a token that the copy has right verify `length` tokens, others none."""
        a, long, plain = self.process.acceptance, self.times.target(1 + length), self.times.plain
        if self.process.correlation:
            verdicts, place = self.script.agreement, 0
            rounds: list[tuple[int, float]] = []
            while place < len(verdicts.verdicts):
                found = verdicts.at(place - 1)
                good = min(verdicts.run_from(place), length) if found else 0
                rounds.append((good + 1, long if found else plain))
                place += good + 1
            tokens = sum(one for one, _ in rounds) / len(rounds)
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

    def parallel(self, most: int) -> Expectation:
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

        return max((at(one) for one in range(1, most + 1)), key=lambda one: one.speedup)

    def _tokens(self, tree: RankedTree) -> float:
        """Tokens a round: one of the target's own, and the accepted path."""
        if not self.process.correlation:
            return 1 + tree.expected(self.process.chances())
        ranks = self.script.used
        return walked(lambda place: tree.accepted(ranks, place), len(ranks))

    def _speed(self, tokens: float, seconds: float, length: int) -> Expectation:
        return Expectation(tokens * self.times.plain / seconds, tokens, length)


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
