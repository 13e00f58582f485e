"""Steps at fixed shapes: buckets of rows and entries, their inputs, and what they leave."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..acceptance import Rule
from ..interface import CommittedBlock
from ..loop import RowState, VerifiedBlock, verify
from ..runner import ModelRunner
from ..sampling import Processing
from ..tree import ROOT, Tree
from .recorder import MAX_CELLS, GraphRecorder, Replays, compiled_for, entering, power_of_two

ENTRIES = (1, 2, 4, 8, 16, 32, 64, 65, 128)
"""Entries of a bucket, the root included; a Jacobi window or HSD tree of 64 is a block of 65."""


class Bucket(NamedTuple):
    """Steps that have one shape and share graphs.

    Attributes:
        rows, entries: the shape.
        is_chain: of the drafts.
        is_drawn: drafts say what they were drawn from.
    """

    rows: int
    entries: int
    is_chain: bool
    is_drawn: bool


class StepRecords:
    """Holds recorded steps by bucket, and what they read and leave beside the rows.

    The first step of all is not padded; it says what scores and states look like.

    Args:
        recorder: of the device; `None` only pads.
        entries: of the largest block that is expected; larger ones are not padded.
    """

    def __init__(self, recorder: GraphRecorder | None, entries: int) -> None:
        self.recorder, self.replays = recorder, Replays(recorder)
        self.buckets: dict[Bucket, PaddedSteps] = {}
        self.results: dict[str, Tensor] = {}  # of all buckets; flat
        self.entries = self._rows = 0
        self.expect(entries)

    @property
    def nbytes(self) -> int:
        """Returns the memory that records take, and what they leave."""
        size = sum(result.nbytes for result in self.results.values())
        return size + (0 if self.recorder is None else self.recorder.nbytes)

    def expect(self, entries: int) -> None:
        """Have room for blocks of so many entries; buckets that are there stay as they are."""
        if entries <= self.entries:
            return
        self.entries = next((size for size in ENTRIES if size >= entries), ENTRIES[-1])
        if self.results:
            hidden = self.results["hidden"]
            self.make_results(self.results["logits"], hidden, self._rows)

    def read(self, tensors: list[Tensor]) -> None:
        """Read these tensors; if others were read before, what was recorded is dropped."""
        if not self.replays.keeps(tensors):
            self.buckets, self.results = {}, {}

    def bucket(self, target: ModelRunner, tree: Tree, minimum: int) -> Bucket | None:
        """Returns the smallest that holds a step, of `minimum` entries at least, or `None`."""
        if self.replays.failure or not target.takes_graphs or tree.nodes >= self.entries:
            return None
        rows = min(power_of_two(tree.rows), target.cache.row_capacity)
        entries = next(size for size in ENTRIES if size > tree.nodes)
        wide = next(size for size in ENTRIES if size >= min(minimum, self.entries))
        if rows * entries > MAX_CELLS:
            return None
        if rows * wide <= MAX_CELLS:
            entries = max(entries, wide)
        return Bucket(rows, entries, tree.is_chain, tree.probs is not None)

    def make_results(self, logits: Tensor, hidden: Tensor, rows: int) -> None:
        """Makes the tensors in which buckets leave logits and states: one for all, of which each
        step writes the beginning; outside the pool, where nothing survives the next replay.

        Args:
            logits, hidden: like which they are, `[..., vocab]` and `[..., hidden]`.
            rows: most of a step.
        """
        self._rows = rows
        cells = min(power_of_two(rows) * self.entries, MAX_CELLS)
        with torch.inference_mode(False):
            self.results = {
                "logits": logits.new_zeros(cells, logits.shape[-1], dtype=torch.float32),
                "hidden": hidden.new_zeros(cells, hidden.shape[-1]),
            }

    def part(self, name: str, bucket: Bucket) -> Tensor:
        """A bucket's part of `logits` or `hidden`, or of what is like `logits` and made when it is
        needed, `[rows, entries, ...]`: processed `scores`, and `probs` that drafts are drawn from.
        """
        if name not in self.results:
            with torch.inference_mode(False):  # zeros: what is padding must be numbers, too
                self.results[name] = torch.zeros_like(self.results["logits"])
        flat = self.results[name][: bucket.rows * bucket.entries]
        return flat.view(bucket.rows, bucket.entries, *flat.shape[1:])

    def padded(self, bucket: Bucket, compiled: Mapping[str, Any] | None) -> PaddedSteps:
        """Returns the inputs of a bucket's steps."""
        if bucket not in self.buckets:
            names = ("logits", "hidden", "probs") if bucket.is_drawn else ("logits", "hidden")
            parts = {name: self.part(name, bucket) for name in names}
            self.buckets[bucket] = PaddedSteps(bucket, parts, compiled)
        return self.buckets[bucket]


class PaddedSteps:
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
        self._packed: Tensor | None = None  # what verification found
        self._options = compiled
        self._forward: Callable[..., tuple[Tensor, Tensor]] | None = None

    @property
    def buffers(self) -> list[Tensor]:
        tensors = (self.tokens, self.parents, self.sizes, self.probs, self.logits, self.hidden)
        return [tensor for tensor in tensors if tensor is not None]

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
        rows, entries, is_chain, _ = self.bucket
        if self._forward is None:
            shape = (rows, entries, is_chain, target.cache.capacity)
            options, plain = self._options, _padded_forward
            self._forward = plain if options is None else compiled_for(plain, options, *shape)
        with target.using(rows), state.using(rows), entering(target, self._options is not None):
            logits, hidden = self._forward(
                target, state.roots, self.tokens, self.parents, self.sizes, is_chain
            )
        self.logits.copy_(logits)
        self.hidden.copy_(hidden)

    def verify(
        self, target: ModelRunner, state: RowState, rule: Rule, processing: Processing,
        scores: Tensor,
    ) -> None:  # fmt: skip
        """Judge the scores and commit; inactive rows keep nothing."""
        rows, is_chain = self.bucket.rows, self.bucket.is_chain
        tree = Tree(self.tokens, self.parents, self.sizes, self.probs, is_chain)
        with target.using(rows), state.using(rows):
            verified = verify(tree, scores, rule, processing, state)
            committed = verified.committed
            entries = torch.where(self.sizes >= 0, committed.entries, 0)
            target.commit_path(committed.path, entries, is_chain=is_chain)
        packed = torch.cat([verified.report, committed.path, committed.tokens, entries[:, None]], 1)
        if self._packed is None:
            with torch.inference_mode(False):
                self._packed = torch.empty_like(packed)
            self._widths = [
                tensor.shape[1] for tensor in (verified.report, committed.path, committed.tokens)
            ]
        self._packed.copy_(packed)

    def verified(self, scores: Tensor) -> VerifiedBlock:
        """Returns what verification decided for the active rows."""
        assert self._packed is not None
        packed = self._packed[: self.rows].clone()  # drafters may keep it
        report, path, tokens, entries = packed.split([*self._widths, 1], 1)
        return VerifiedBlock(report, scores, CommittedBlock(tokens, path, entries[:, 0]))


def _padded_forward(
    target: ModelRunner, roots: Tensor, tokens: Tensor, parents: Tensor, sizes: Tensor,
    is_chain: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Logits and states of a padded block; `torch.compile` takes it as one graph."""
    tree = Tree(tokens, parents, sizes, is_chain=is_chain)
    forward = target.forward_padded(roots, tree, sizes + 1)
    return forward.logits, forward.hidden
