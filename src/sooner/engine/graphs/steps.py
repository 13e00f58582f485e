"""The steps of a batch, padded to buckets of rows and entries, and launched as graphs.

`Tree.sizes` says what of a bucket is real; the rest is written to the trash slot and seen by
nobody. Each has two graphs, the forward and verify + commit, so that what only the host can do to
the scores stands between them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from copy import copy
from typing import Any

import torch
from torch import Tensor

from ...models.base import is_sharded
from ..acceptance import Rule
from ..loop import RowState, VerifiedBlock, step, verify
from ..runner import Forward, ModelRunner, is_split
from ..sampling import Processing
from ..stats.run import Stats
from ..tree import Tree
from .buckets import ENTRIES, StepRecords
from .drafts import ForwardGraphs, PartGraphs
from .recorder import CudaGraphs, GraphRecorder, Replays
from .store import GraphStore, StaticMemory, capacity_for, key_of, may_move, open_memory, release

WAITING = {
    "gemma3n": "uploads a number in each layer whose activations are sparse",
    "step3p7": "reads which of its experts are chosen",
}
"""What the host does within a forward of a decoder, by its package in `transformers.models`."""

UPDATED = ("dynamic", "longrope")
"""Kinds of RoPE for which transformers reads the largest position in each forward; a runner that
turns each token by itself (`engine/rope.py`) does not."""

WARM_TOKENS = 512
"""Tokens of a row; those that end before have met the blocks by which they came so far."""

NO_TOKEN = 1 << 30
"""A stop id that no vocabulary has."""

WARM_OFFSETS = (1, 2, 4)
"""Tokens by which a draft is behind the target: what followed its own, or a few more."""


class StepGraphs:
    """Launches the steps of one run by bucket, and the forwards of a draft beside them.

    Args:
        recorder: of the device; `None` only pads.
        entries: of the largest block that is expected; larger ones are not padded.
        compiled: arguments of `torch.compile` for the forward, a callable a bucket.
        owner: see `store.key_of`: later runs go on with its memory and records; `None`: none do.

    Attributes:
        minimum: entries that steps are padded to at least, for who warms up.
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
        self._used: list[tuple[Replays, Replays]] = []  # and as they were before this run
        self.count(self._steps)
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
        """Give a runner, before its prefill, idle memory that graphs know, if there is some.

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

    def parts(self, runner: Any, rows: int | None) -> Any:
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
        self.count(graphs)
        return runner

    def count(self, graphs: Any) -> None:
        """Count what is recorded from now on of a draft's forwards, or of these steps."""
        replays = graphs.replays
        if all(entry is not replays for entry, _ in self._used):
            self._used.append((replays, copy(replays)))

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
            self.count(self._steps)
            self._steps.expect(self._expected)

    def step(
        self, target: ModelRunner, tree: Tree, rule: Rule, processing: Processing, state: RowState,
        score: Callable[[Tensor], Tensor], on_forward: Callable[[], None] = lambda: None,
    ) -> tuple[VerifiedBlock, Forward]:  # fmt: skip
        """`loop.step`, padded; its logits and scores are gone with the next."""
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
        return sum(now.unsettled - before.unsettled for now, before in self._used)

    @property
    def capture_seconds(self) -> float:
        """Returns the time that recording took in this run."""
        return sum(now.seconds - before.seconds for now, before in self._used)

    def tell(self, stats: Stats) -> None:
        """Add what was recorded to the statistics."""
        stats.graph_bytes += self.nbytes
        stats.capture_seconds += self.capture_seconds
        for now, before in self._used:
            stats.graphs += now.recorded - before.recorded
            if now.failure is not None:
                stats.note(f"graphs are off: {now.failure}")
        for refusal in dict.fromkeys(self._refusals):
            stats.note(refusal)


def open_graphs(
    target: ModelRunner, graphs: str | GraphRecorder, entries: int,
    compile: bool | Mapping[str, Any], stats: Stats,
) -> StepGraphs | None:  # fmt: skip
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
    compiled = None if compile is False else {} if compile is True else compile
    options = None if compiled is None else repr(sorted(compiled.items()))
    owner = ("auto" if isinstance(graphs, str) else id(graphs), options)
    return StepGraphs(recorder, entries, compiled, owner)


def why_not_padded(runner: ModelRunner) -> str | None:
    """Why forwards of a model can't be padded to buckets; `None` if they can."""
    model = runner.adapter.model
    if type(runner) is not ModelRunner:
        return "guidance forwards every row twice"
    if runner.cache.is_offloaded:
        return "keys and values lie in host memory"
    if is_split(model):
        return "the model's layers lie on several devices"
    if is_sharded(model):
        return "tensor parallelism waits for other ranks"
    if not runner.adapter.takes_blocks:
        return f"the attention of {type(model).__name__} takes masks"
    return None


def why_not(runner: ModelRunner) -> str | None:
    """Why forwards of a model can't be graphs; `None` if they can.

    A graph replays what the device did: a forward in which the host reads from the device, or
    sends to it, can't be captured. What transformers does is known by name here, found by a scan
    (`lab/tests/bench/test_graph_waits.py`); for a checkpoint's own code the capture tells.
    """
    if (reason := why_not_padded(runner)) is not None:
        return reason
    decoder, name = runner.adapter.decoder, type(runner.adapter.model).__name__
    package = type(decoder).__module__.removeprefix("transformers.models.").split(".")[0]
    if package in WAITING:
        return f"{name} {WAITING[package]}"
    is_by_token = runner.rope is not None and runner.rope.is_known
    for module in decoder.modules():
        if _runs_experts_in_turn(module):
            return (
                f"{name} reads which of its experts are chosen; load it with "
                "experts_implementation='grouped_mm'"
            )
        if not is_by_token and (kind := _updated(module)) is not None:
            return f"the '{kind}' RoPE of {name} reads the largest position"
    return None


def _runs_experts_in_turn(module: Any) -> bool:
    """Whether a module is of experts that transformers can run at once, and does not."""
    is_wrapped = hasattr(module, "has_gate") and hasattr(module, "is_transposed")
    return is_wrapped and getattr(module.config, "_experts_implementation", None) == "eager"


def _updated(module: Any) -> str | None:
    """The kind of RoPE of a module, one or one for each kind of layer, if it is of `UPDATED`."""
    kinds = getattr(module, "rope_type", None)
    kinds = kinds.values() if isinstance(kinds, dict) else [kinds]
    return next((kind for kind in kinds if kind in UPDATED), None)


def warm_graphs(engine: Any, inputs: Mapping[str, Any]) -> None:
    """Take steps of every bucket, greedy and drawn.

    Args:
        engine: a `sooner.Engine` that is idle and launches its steps as graphs.
        inputs: a short prompt of one row.

    Raises:
        Exception: that a request ended with.
    """
    rows = engine.max_rows
    while rows:
        for do_sample in (False, True):
            if not _warm(engine, inputs, rows, do_sample):
                return
        rows = 1 << (rows - 1).bit_length() >> 1


def _warm(engine: Any, inputs: Mapping[str, Any], rows: int, do_sample: bool) -> bool:
    """Warms up steps for so many rows; returns whether there are graphs."""
    longest, width = engine.longest, int(inputs["input_ids"].shape[1])
    new = WARM_TOKENS if longest is None else min(WARM_TOKENS, longest - width)
    options = {"max_new_tokens": new, "do_sample": do_sample, "eos_token_id": NO_TOKEN}
    requests = [engine.add_request(inputs, **options) for _ in range(rows)]
    while engine.waiting or engine.prefilling is not None:
        engine.step()
    graphs = None if engine.batch is None else engine.batch.session.graphs
    if graphs is not None:
        for entries in ENTRIES:
            if entries > graphs.entries or engine.batch is None:
                break
            graphs.minimum = entries
            for session in engine.batch.sessions:
                session.max_draft = entries - 1
            engine.step()
            engine.step()  # whose draft is as long as that
        graphs.minimum = 1
        if engine.batch is not None:
            _forward_draft(engine.batch.drafter)
    for request in requests:
        engine.cancel(request)
    engine.run()
    for request in requests:
        if request.error is not None:
            raise request.error
    return graphs is not None


@torch.inference_mode()
def _forward_draft(drafter: Any) -> None:
    """Let a draft model forward blocks as wide as it is behind; nothing of them is committed."""
    runner: Any = getattr(drafter, "runner", None)
    if getattr(runner, "graphs", None) is None:
        return
    for width in WARM_OFFSETS:
        shape = (len(runner.lengths), width)
        runner.forward_chain(torch.zeros(shape, dtype=torch.long, device=drafter.adapter.device))
