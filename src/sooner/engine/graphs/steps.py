"""The steps of a batch, padded to buckets of rows and entries, and launched as graphs.

`Tree.sizes` says what of a bucket is real; the rest is written to the trash slot and seen by
nobody. Each has two graphs, the forward and verify + commit, so that what only the host can do to
the scores stands between them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ..acceptance import Rule
from ..runner import Forward, LaunchesForwards, ModelRunner
from ..sampling import Processing
from ..stats.run import Stats
from ..step import RowState, VerifiedBlock, step, verify
from ..tree import Tree
from .buckets import StepRecords
from .forwards import ForwardGraphs
from .parts import PartGraphs, PartRunner
from .recorder import CudaGraphs, GraphRecorder, Replays
from .store import (
    GraphStore,
    StaticMemory,
    capacity_for,
    key_of,
    may_move,
    open_memory,
    release,
)
from .support import why_not, why_not_padded


@dataclass(frozen=True)
class _Since:
    """Counts of records when a run began to use them."""

    replays: Replays
    recorded: int
    unsettled: int
    seconds: float


class StepGraphs:
    """Launches the steps of one run by bucket, and the forwards of a draft beside them.

    Args:
        recorder: of the device; `None` only pads.
        entries: of the largest block that is expected; larger ones are not padded.
        compiled: arguments of `torch.compile` for the forward, a callable a bucket.
        owner: see `store.key_of`: later runs go on with this one's memory and records. `None`: they
            end with it.

    Attributes:
        least: entries that steps are padded to at least, for who warms up.
    """

    def __init__(
        self,
        recorder: GraphRecorder | None,
        entries: int,
        compiled: Mapping[str, Any] | None = None,
        owner: Hashable = None,
    ) -> None:
        self.compiled, self.owner, self.minimum = compiled, owner, 1
        self._steps, self._expected = StepRecords(recorder, entries), entries
        self._memory: StaticMemory | None = None
        self._key: Hashable = None
        self._is_settled = False
        self._used: list[_Since] = []
        self._count(self._steps.replays)
        self._refusals: list[str] = []

    @property
    def records(self) -> Replays:
        """What was recorded of the steps."""
        return self._steps.replays

    @property
    def entries(self) -> int:
        """Returns the entries of the largest block that is padded."""
        return self._steps.entries

    def open(self, target: ModelRunner, rows: int) -> None:
        """Give a runner, before its prompts are prefilled, memory that graphs know, if some is
        idle.

        Args:
            rows: of the prompts.
        """
        if self.owner is not None and may_move(target):
            self._key = ("steps", key_of(target, self.owner))
            self._memory = open_memory(target, self._key, rows)

    def release(self, target: ModelRunner, state: RowState) -> None:
        """Let other runs have the memory of this one, which takes no more steps."""
        owner, self.owner = self.owner, None
        if owner is not None and self._is_settled:
            release(self._key, target, self._steps, state)
        elif owner is not None and self._memory is not None:
            GraphStore.of(target).give(self._memory)

    def forwards(self, runner: ModelRunner, rows: int | None = None) -> ForwardGraphs | None:
        """Graphs for the forwards of a draft beside the target; `None` where it allows none.

        Args:
            rows: of its prompts, where they are not prefilled yet.
        """
        recorder, refusal = self._steps.recorder, why_not_padded(runner)
        may_compile = refusal is None and self.compiled is not None
        if recorder is not None and (refusal := refusal or why_not(runner)) is not None:
            self._refusals.append(f"graphs of the draft are off: {refusal}")
            recorder = None
        if recorder is None and not may_compile:
            return None
        key = memory = None
        if rows is not None and self.owner is not None and may_move(runner):
            key = ("forwards", key_of(runner, self.owner))
            memory = open_memory(runner, key, rows)
        made = ForwardGraphs(recorder, self.compiled) if memory is None else memory.graphs
        made.key = key
        self.count(made)
        return made

    def parts(self, runner: PartRunner, rows: int | None) -> PartRunner:
        """A runner for the parts of a trained drafter, launched as graphs where steps are: an idle
        one that graphs know, or this one, which has read no prompt yet.

        Args:
            rows: of the prompts; `None` if they are about to join those of another runner.
        """
        recorder = self._steps.recorder
        if recorder is None:
            return runner
        runner.resize(capacity_for(runner.cache.capacity))
        if rows is None:
            return runner
        key = None
        if self.owner is not None:
            key = ("parts", type(runner), runner.options, key_of(runner, self.owner))
            cache = runner.cache
            memory = GraphStore.of(runner).take(key, lambda other: cache.can_take(other, rows))
            if memory is not None:
                memory.runner.adapter, runner = runner.adapter, memory.runner
                runner.cache.use(rows)
        graphs = runner.graphs = runner.graphs or PartGraphs(recorder, key)
        self._count(graphs.replays)
        return runner

    def count(self, forwards: LaunchesForwards) -> None:
        """Count what is recorded from now on of a draft's forwards."""
        if isinstance(forwards, ForwardGraphs):
            self._count(forwards.replays)

    def _count(self, replays: Replays) -> None:
        if any(entry.replays is replays for entry in self._used):
            return
        since = _Since(replays, replays.recorded, replays.unsettled, replays.seconds)
        self._used.append(since)

    def _settle(self, target: ModelRunner, state: RowState) -> None:
        """Before the first step: let it read and write where recorded ones do."""
        self._is_settled = True
        if self.owner is None:
            return
        cache, memory, store = target.cache, self._memory, GraphStore.of(target)
        if memory is None:
            self._key = ("steps", key_of(target, self.owner))
        if memory is None and cache.page_table is not None:
            rows = len(cache.lengths)
            memory = store.take(self._key, lambda other: cache.can_take(other, rows))
            if memory is not None:
                cache.take(memory.cache, rows)
        elif memory is None:  # or its rows lie among those of a batch that has ended
            memory = store.take(self._key, lambda other: other.borrower is cache)
            if memory is not None:
                memory.cache.prefix = cache.prefix
                memory.cache.merge(cache)
                target.cache = memory.cache
        if memory is not None:
            memory.receive(target, state)
            self._steps = memory.graphs
            self._count(self._steps.replays)
            self._steps.expect(self._expected)

    def step(
        self,
        target: ModelRunner,
        tree: Tree,
        rule: Rule,
        processing: Processing,
        state: RowState,
        score: Callable[[Tensor], Tensor],
        on_forward: Callable[[], None] = lambda: None,
    ) -> tuple[VerifiedBlock, Forward]:
        """`step.step`, padded; its logits and scores are gone with the next."""
        if not self._is_settled:
            self._settle(target, state)
        target.cache.reserve(1 + tree.nodes)
        target.cache.lengths_on(state.roots.device)  # the host may have changed them
        steps = self._steps
        steps.read([*target.buffers, *state.buffers])
        bucket = steps.bucket(target, tree, self.minimum)
        if bucket is None or not steps.results:
            verified, forward = step(target, tree, rule, processing, state, score, on_forward)
            if not steps.results:
                steps.replays.unsettled += 1
                steps.make_results(forward.logits, forward.hidden, target.cache.row_capacity)
            return verified, forward
        padded = steps.padded(bucket, self.compiled)
        padded.fill(tree)
        rows, entries = tree.rows, 1 + tree.nodes
        launch = steps.replays.run
        launch((bucket, "forward"), lambda: padded.forward(target, state), padded.buffers)
        on_forward()
        logits = padded.logits[:rows, :entries]
        scores = score(logits)
        forward = Forward(logits, padded.hidden[:rows, :entries].clone())
        if getattr(rule, "is_pure", False) and not processing.counts_tokens:
            verified_scores = padded.logits
            if scores is not logits:
                verified_scores = steps.part("scores", bucket)
                verified_scores[:rows, :entries].copy_(scores)
            launch(
                (bucket, rule, processing.do_sample, scores is logits),
                lambda: padded.verify(target, state, rule, processing, verified_scores),
                [*padded.buffers, verified_scores],
            )
            return padded.verified(scores), forward
        verified = verify(tree, scores, rule, processing, state)
        committed = verified.committed
        target.commit_path(committed.path, committed.entries, is_chain=tree.is_chain)
        return verified, forward

    @property
    def nbytes(self) -> int:
        """Returns the memory beside weights, keys and values: records, and what they leave."""
        return self._steps.nbytes

    @property
    def unsettled(self) -> int:
        """Launches of this run that took longer than those after them."""
        return sum(entry.replays.unsettled - entry.unsettled for entry in self._used)

    @property
    def capture_seconds(self) -> float:
        """Returns the time that recording took in this run."""
        return sum(entry.replays.seconds - entry.seconds for entry in self._used)

    def tell(self, stats: Stats) -> None:
        """Add what was recorded to the statistics."""
        stats.graph_bytes += self.nbytes
        stats.capture_seconds += self.capture_seconds
        for entry in self._used:
            stats.graphs += entry.replays.recorded - entry.recorded
            if entry.replays.failure is not None:
                stats.note(f"graphs are off: {entry.replays.failure}")
        for refusal in dict.fromkeys(self._refusals):
            stats.note(refusal)


def open_graphs(
    target: ModelRunner,
    graphs: str | GraphRecorder,
    entries: int,
    compile: bool | Mapping[str, Any],
    stats: Stats,
) -> StepGraphs | None:
    """How the steps of a run are launched; `None` is one by one.

    Args:
        graphs: `auto`: recorded on a GPU that holds the whole model; `off`; or by this recorder.
        entries: of the largest block.
        compile: the forward, with these arguments of `torch.compile`.
        stats: told why nothing is recorded on a GPU.
    """
    if (reason := why_not_padded(target)) is not None:
        if graphs != "off":
            stats.note(f"graphs are off: {reason}")
        return None
    recorder: GraphRecorder | None = None if isinstance(graphs, str) else graphs
    if graphs == "auto" and target.adapter.device.type == "cuda":
        recorder = CudaGraphs(target.adapter.device)
    if recorder is not None and (reason := why_not(target)) is not None:
        stats.note(f"graphs are off: {reason}")
        recorder = None
    if recorder is None and compile is False:
        return None
    compiled = {} if compile is True else compile
    owner = (
        "auto" if isinstance(graphs, str) else id(graphs),
        None if compiled is False else repr(sorted(compiled.items())),
    )
    return StepGraphs(recorder, entries, None if compiled is False else compiled, owner)
