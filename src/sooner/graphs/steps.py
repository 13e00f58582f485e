"""The steps of a batch, padded to buckets of rows and entries, and launched as graphs.

`Tree.sizes` says what of a bucket is real; the rest is written to the trash slot and seen by
nobody. Each has two graphs, the forward and judge + commit, so that what only the host can do to
the scores stands between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..attention.context import attending_to_blocks
from ..decoding.interface import CommittedBlock
from ..decoding.runner import Forward, ModelRunner
from ..decoding.sampling import Processing
from ..decoding.step import JudgedBlock, RowState, Rule, judge, step
from ..decoding.tree import ROOT, Tree
from ..stats.run import Stats
from .forwards import ForwardGraphs
from .recorder import MOST_CELLS, CudaGraphs, GraphRecorder, Replays, power_of_two
from .support import why_not, why_not_padded

ENTRIES = (1, 2, 4, 8, 16, 32, 64, 65, 128)
"""Entries of a bucket, the root included; a Jacobi window or HSD tree of 64 is a block of 65."""


class Bucket(NamedTuple):
    """Steps of one shape, which share graphs.

    Attributes:
        rows, entries: the shape.
        is_chain: of the drafts.
        is_drawn: drafts say what they were drawn from.
        draws: some row draws.
    """

    rows: int
    entries: int
    is_chain: bool
    is_drawn: bool
    draws: bool


class StepGraphs:
    """The steps of one batch by bucket.

    The first step of all is not padded; it says what scores and states look like.

    Args:
        recorder: of the device; `None` only pads.
        entries: of the largest block that is expected; larger ones are not padded.
        compiled: arguments of `torch.compile` for the forward, a callable a bucket.
    """

    def __init__(
        self,
        recorder: GraphRecorder | None,
        entries: int,
        compiled: Mapping[str, Any] | None = None,
    ) -> None:
        self.records, self.compiled = Replays(recorder), compiled
        self.entries = next((size for size in ENTRIES if size >= entries), ENTRIES[-1])
        self._recorder = recorder
        self._buckets: dict[Bucket, _Padded] = {}
        self._results: dict[str, Tensor] = {}  # of all buckets; flat
        self._drafts: list[Replays] = []

    def forwards(self, runner: ModelRunner) -> ForwardGraphs | None:
        """Graphs for the forwards of a draft beside the target; `None` where it allows none."""
        if self._recorder is None or why_not(runner) is not None:
            return None
        made = ForwardGraphs(self._recorder)
        self._drafts.append(made.records)
        return made

    def step(
        self,
        target: ModelRunner,
        tree: Tree,
        rule: Rule,
        processing: Processing,
        state: RowState,
        score: Callable[[Tensor], Tensor],
        on_forward: Callable[[], None] = lambda: None,
    ) -> tuple[JudgedBlock, Forward]:
        """`step.step`, padded; its logits and scores are gone with the next."""
        target.cache.reserve(1 + tree.nodes)
        target.cache.lengths_on(state.roots.device)  # the host may have changed them
        if not self.records.keeps([*target.held, *state.held]):
            self._buckets, self._results = {}, {}
        bucket = self._bucket(target, tree, processing)
        if bucket is None or not self._results:
            judged, forward = step(target, tree, rule, processing, state, score, on_forward)
            if not self._results:
                self.records.unsettled += 1
                self._make_results(forward, target.cache.rows_held)
            return judged, forward
        padded = self._padded(bucket)
        padded.fill(tree)
        rows, entries = tree.rows, 1 + tree.nodes
        launch = self.records.run
        launch((bucket, "forward"), lambda: padded.forward(target, state), padded.held)
        on_forward()
        logits = padded.logits[:rows, :entries]
        scores = score(logits)
        forward = Forward(logits, padded.hidden[:rows, :entries].clone())
        if getattr(rule, "is_pure", False) and not processing.counts_tokens:
            judged_scores = padded.logits
            if scores is not logits:
                judged_scores = self._part("scores", bucket)
                judged_scores[:rows, :entries].copy_(scores)
            launch(
                (bucket, "judge", scores is logits),
                lambda: padded.judge(target, state, rule, processing, judged_scores),
                [*padded.held, judged_scores],
            )
            return padded.judged(scores), forward
        judged = judge(tree, scores, rule, processing, state)
        kept = judged.committed
        target.commit_path(kept.path, kept.entries, is_chain=tree.is_chain)
        return judged, forward

    @property
    def nbytes(self) -> int:
        """Memory beside weights, keys and values: of records, and of what they leave."""
        taken = sum(one.nbytes for one in self._results.values())
        return taken + (0 if self._recorder is None else self._recorder.nbytes)

    @property
    def unsettled(self) -> int:
        """Launches that took longer than those after them."""
        return sum(one.unsettled for one in (self.records, *self._drafts))

    @property
    def capture_seconds(self) -> float:
        """That recording took."""
        return sum(one.seconds for one in (self.records, *self._drafts))

    def tell(self, stats: Stats) -> None:
        """Add what was recorded to the statistics."""
        stats.graph_bytes += self.nbytes
        stats.capture_seconds += self.capture_seconds
        for one in (self.records, *self._drafts):
            stats.graphs += len(one)
            if one.failure is not None:
                stats.note(f"graphs are off: {one.failure}")

    def _bucket(self, target: ModelRunner, tree: Tree, processing: Processing) -> Bucket | None:
        """The smallest that holds the step; `None` if there is none."""
        if self.records.failure or not target.takes_graphs or tree.nodes >= self.entries:
            return None
        rows = min(power_of_two(tree.rows), target.cache.rows_held)
        entries = next(size for size in ENTRIES if size > tree.nodes)
        if rows * entries > MOST_CELLS:
            return None
        is_drawn = tree.probs is not None
        return Bucket(rows, entries, tree.is_chain, is_drawn, processing.do_sample)

    def _make_results(self, forward: Forward, rows: int) -> None:
        """Where buckets leave scores and states: one place for all, of which each step writes the
        beginning; outside the pool, where nothing survives the next replay."""
        cells = min(power_of_two(rows) * self.entries, MOST_CELLS)
        with torch.inference_mode(False):
            self._results = {
                "logits": forward.logits.new_zeros(
                    cells, forward.logits.shape[2], dtype=torch.float32
                ),
                "hidden": forward.hidden.new_zeros(cells, forward.hidden.shape[2]),
            }

    def _part(self, name: str, bucket: Bucket) -> Tensor:
        """A bucket's part of `logits` or `hidden`, or of what is like `logits` and made when it is
        needed, `[rows, entries, ...]`: processed `scores`, and `probs` that drafts are drawn from.
        """
        if name not in self._results:
            with torch.inference_mode(False):  # zeros: what is padding must be numbers, too
                self._results[name] = torch.zeros_like(self._results["logits"])
        shape = (bucket.rows, bucket.entries)
        return self._results[name][: bucket.rows * bucket.entries].unflatten(0, shape)

    def _padded(self, bucket: Bucket) -> _Padded:
        if bucket not in self._buckets:
            names = ("logits", "hidden", "probs") if bucket.is_drawn else ("logits", "hidden")
            parts = {name: self._part(name, bucket) for name in names}
            self._buckets[bucket] = _Padded(bucket, parts, self.compiled)
        return self._buckets[bucket]


class _Padded:
    """The inputs of a bucket's steps at their addresses, and what is done with them.

    Attributes:
        logits: `[rows, entries, vocab]` fp32.
        hidden: `[rows, entries, hidden]`.
    """

    def __init__(
        self, bucket: Bucket, results: Mapping[str, Tensor], compiled: Mapping[str, Any] | None
    ) -> None:
        self.bucket = bucket
        self.logits, self.hidden = results["logits"], results["hidden"]
        self.probs = results.get("probs")
        rows, nodes, device = bucket.rows, bucket.entries - 1, self.logits.device
        with torch.inference_mode(False):
            self.tokens = torch.zeros(rows, nodes, dtype=torch.long, device=device)
            self.parents = torch.full_like(self.tokens, ROOT)
            if bucket.is_chain:
                self.parents = torch.arange(-1, nodes - 1, device=device).repeat(rows, 1)
            self.sizes = torch.full((rows,), -1, device=device)
        self.rows = 0  # that are active
        self._packed: Tensor | None = None  # what judging found
        self._forward = _padded_forward
        if compiled is not None:
            code = _code(rows, 1 + nodes, bucket.is_chain)
            self._forward = torch.compile(FunctionType(code, globals()), dynamic=False, **compiled)
        self.is_compiled = compiled is not None

    @property
    def held(self) -> list[Tensor]:
        given = (self.tokens, self.parents, self.sizes, self.probs, self.logits, self.hidden)
        return [one for one in given if one is not None]

    def fill(self, tree: Tree) -> None:
        """Take a draft."""
        rows, nodes = tree.rows, tree.nodes
        if rows != self.rows:
            self.sizes[rows:].fill_(-1)
        if rows != self.rows or self.bucket.entries > 1:
            self.sizes[:rows].copy_(tree.sizes)
        self.rows = rows
        if not nodes:
            return
        self.tokens[:rows, :nodes].copy_(tree.tokens)
        if not self.bucket.is_chain:
            self.parents[:rows, :nodes].copy_(tree.parents)
        if self.probs is not None and tree.probs is not None:
            self.probs[:rows, : 1 + nodes].copy_(tree.probs)

    def forward(self, target: ModelRunner, state: RowState) -> None:
        """Leave logits and states of the padded block."""
        rows, is_chain = self.bucket.rows, self.bucket.is_chain
        with target.using(rows), state.using(rows), _compiled(target, self.is_compiled):
            logits, hidden = self._forward(
                target, state.roots, self.tokens, self.parents, self.sizes, is_chain
            )
        self.logits.copy_(logits)
        self.hidden.copy_(hidden)

    def judge(
        self,
        target: ModelRunner,
        state: RowState,
        rule: Rule,
        processing: Processing,
        scores: Tensor,
    ) -> None:
        """Judge the scores and commit; inactive rows keep nothing."""
        rows, is_chain = self.bucket.rows, self.bucket.is_chain
        tree = Tree(self.tokens, self.parents, self.sizes, self.probs, is_chain)
        with target.using(rows), state.using(rows):
            judged = judge(tree, scores, rule, processing, state)
            kept = judged.committed
            entries = torch.where(self.sizes >= 0, kept.entries, 0)
            target.commit_path(kept.path, entries, is_chain=is_chain)
        packed = torch.cat([judged.report, kept.path, kept.tokens, entries[:, None]], 1)
        if self._packed is None:
            with torch.inference_mode(False):
                self._packed = torch.empty_like(packed)
            self._widths = [one.shape[1] for one in (judged.report, kept.path, kept.tokens)]
        self._packed.copy_(packed)

    def judged(self, scores: Tensor) -> JudgedBlock:
        """What judging found for the active rows."""
        assert self._packed is not None
        found = self._packed[: self.rows].clone()  # drafters may keep it
        report, path, tokens, entries = found.split([*self._widths, 1], 1)
        return JudgedBlock(report, scores, CommittedBlock(tokens, path, entries[:, 0]))


def _padded_forward(
    target: ModelRunner, roots: Tensor, tokens: Tensor, parents: Tensor, sizes: Tensor,
    is_chain: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Logits and states of a padded block; `torch.compile` takes it as one graph."""
    tree = Tree(tokens, parents, sizes, is_chain=is_chain)
    forward = target.forward_padded(roots, tree, sizes + 1)
    return forward.logits, forward.hidden


@cache
def _code(rows: int, entries: int, is_chain: bool) -> CodeType:
    """Code of a bucket's own: dynamo keeps what it compiled by code, 8 graphs at most."""
    kind = "chain" if is_chain else "tree"
    return _padded_forward.__code__.replace(co_name=f"forward_{rows}_{entries}_{kind}")


@contextmanager
def _compiled(target: ModelRunner, is_compiled: bool) -> Iterator[None]:
    """What a compiled forward can't enter by itself."""
    if not is_compiled:
        yield
        return
    attending = attending_to_blocks(target.adapter.text_config)
    with target.rope_by_token(), attending, torch.inference_mode(False), torch.no_grad():
        yield


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
    return StepGraphs(recorder, entries, None if compiled is False else compiled)
