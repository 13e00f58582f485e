"""Whole rounds, watched: what the loop and each method's drafter read and upload between steps.

They wait for the report of a step, so they can't run on fake tensors: a tiny model decodes on a
simulated device.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
from torch import Tensor

import sooner
from sooner.engine.interface import Drafter, Outcome
from sooner.engine.loop import Rule
from sooner.engine.rows import Rows
from sooner.engine.stats.run import EVENTS
from sooner.engine.tree import Tree
from sooner.methods import Method
from sooner.methods.context import Context
from sooner.methods.eagle.eagle3 import Eagle3Config, Eagle3Head
from sooner.methods.sd_tree import STATIC_TREE
from sooner.models import adapt
from sooner.tasks.train_draft.blocks import drafter_config
from sooner.tasks.train_draft.settings import BlockTraining

from .guard import Waits
from .operations import Operations
from .simulated import DEVICE, simulated_device, to_device

PROMPT, NEW = 40, 60
"""Tokens of the prompt and of the text that is decoded."""


@dataclass
class WatchedRound:
    """What was counted, means over the rounds of a run.

    Attributes:
        method: name.
        rounds: rounds behind the prefill.
        ops: operations that launch a kernel, those of the drafter included.
        reads, uploads: inside steps.
        reads_between, uploads_between: by the drafter between them.
        clocks: how often the host waits for the device to look at a clock: for an event, or with
            `torch.cuda.synchronize`.
        lines: of the waits, most frequent first: `(times a round, section, wait)`.
    """

    method: str
    rounds: int = 0
    ops: float = 0.0
    reads: float = 0.0
    uploads: float = 0.0
    reads_between: float = 0.0
    uploads_between: float = 0.0
    clocks: float = 0.0
    lines: list[tuple[float, str, str]] = field(default_factory=list)

    def figures(self) -> dict[str, Any]:
        """Return what whole rounds do, drafts included."""
        return {
            "rounds": self.rounds,
            "ops_of_round": self.ops,
            "reads_of_round": self.reads + self.reads_between,
            "uploads_of_round": self.uploads + self.uploads_between,
            "clocks_of_round": self.clocks,
            "waits_of_round": [
                f"{times:.2f} {section}: {wait}" for times, section, wait in self.lines
            ],
        }


def methods(model: Any) -> dict[str, Callable[[], Method]]:
    """Each method with drafts that are right about half the time, on the simulated device.

    Args:
        model: on the CPU.
    """
    draft = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(7)
    for weights in draft.parameters():
        if weights.ndim > 1:
            noise = torch.randn(weights.shape, generator=generator)
            weights.data += 0.1 * weights.data.std() * noise
    prompt = inputs()["input_ids"]
    output = model.generate(**inputs(), max_new_tokens=NEW, eos_token_id=None, do_sample=False)
    text = output[0, prompt.shape[1] :].tolist()
    head = to_device(sooner.EagleHead.for_target(model))
    reduced = to_device(
        Eagle3Head(Eagle3Config.like(adapt(model), layer_ids=(0, 1, 1), draft_vocab_size=40))
    )
    recipe = BlockTraining(layers=1, block_size=6)
    drafter = to_device(sooner.DFlashModel(drafter_config(recipe, adapt(model))).eval())
    draft = to_device(draft)
    return {
        "plain": sooner.Autoregressive,
        "prompt-lookup": lambda: sooner.PromptLookup(num_draft_tokens=10),
        "speculative": lambda: sooner.Speculative(draft, 4),
        "sd-tree": lambda: sooner.SDTree(draft, STATIC_TREE),
        "eagle": lambda: sooner.Eagle(head, nodes=16),
        "eagle3": lambda: sooner.Eagle(reduced, nodes=16),
        "dflash": lambda: sooner.DFlash(drafter, 5),
        "ddtree": lambda: sooner.DDTree(drafter, nodes=16),
        "jacobi": lambda: sooner.CoupledJacobi(8, "maximal"),
        "hsd": lambda: sooner.HSD([[text[:20], text[24:]]], nodes=16),
    }


def inputs(rows: int = 1) -> dict[str, Tensor]:
    """Prompts; of several each is a token longer than the one before it."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(3, 90, (rows, PROMPT), generator=generator)
    padding = torch.arange(rows).flip(0)[:, None]
    return {"input_ids": ids, "attention_mask": (torch.arange(PROMPT) >= padding).long()}


def placed(rows: int = 1) -> dict[str, Tensor]:
    """The prompts on the simulated device."""
    return {name: ids.to(DEVICE) for name, ids in inputs(rows).items()}


def measure(
    name: str, model: Any, method: Method, rows: int = 1, do_sample: bool = False
) -> WatchedRound:
    """Decode once and count every round behind the prefill.

    Args:
        model: on the simulated device.
        rows: of the batch.
        do_sample: tokens are drawn.
    """
    waits, operations = Waits(), Operations()
    sections = _Sections(waits, operations)
    with simulated_device(), waits, operations, sections.clocks():
        sooner.generate(
            model, placed(rows), _Watched(method, sections), max_new_tokens=NEW, eos_token_id=None,
            do_sample=do_sample,
        )  # fmt: skip
    rounds = sections.rounds
    lines = sorted(
        ((times / rounds, section, str(wait)) for (section, wait), times in waits.lines.items()
         if section in ("step", "between")), reverse=True,
    )  # fmt: skip
    return WatchedRound(
        name,
        rounds,
        ops=sections.ops / rounds,
        reads=waits.reads["step"] / rounds,
        uploads=waits.uploads["step"] / rounds,
        reads_between=waits.reads["between"] / rounds,
        uploads_between=waits.uploads["between"] / rounds,
        clocks=sections.clock_waits / rounds,
        lines=lines,
    )


def measure_generate(model: Any) -> WatchedRound:
    """A whole round of HF's `generate`, criteria and all: a long text less a short one."""
    ends = []
    for new in (NEW // 2, NEW):
        with simulated_device(), Waits() as waits, Operations() as operations:
            model.generate(**placed(), max_new_tokens=new, eos_token_id=None, do_sample=False)
        ends.append((waits, operations))
    (early, less), (late, more) = ends
    rounds = NEW - NEW // 2
    seen = late.lines - early.lines
    return WatchedRound(
        "hf-generate",
        rounds,
        ops=(more.launched.total() - less.launched.total()) / rounds,
        reads=(late.reads.total() - early.reads.total()) / rounds,
        uploads=(late.uploads.total() - early.uploads.total()) / rounds,
        lines=sorted(
            ((times / rounds, "step", str(wait)) for (_, wait), times in seen.items()), reverse=True
        ),
    )


class _Sections:
    """Says what is running: the prefill, a step, or what happens between two."""

    def __init__(self, waits: Waits, operations: Operations) -> None:
        self.waits, self.operations = waits, operations
        self.rounds = self.prefill_ops = self.ops = self.clock_waits = 0
        waits.section = "prefill"

    def start_step(self) -> None:
        if self.waits.section == "between":
            self.rounds += 1
            self.waits.section = "step"

    def end_step(self) -> None:
        if self.waits.section == "prefill":
            self.prefill_ops = self.operations.launched.total()
        self.waits.section = "between"

    def end_run(self) -> None:
        self.ops = self.operations.launched.total() - self.prefill_ops
        self.waits.section = "after"

    @contextmanager
    def clocks(self) -> Iterator[None]:
        """Time the run by events, and count where the host waits for one or for the device."""

        def wait(*_: Any) -> None:
            self.clock_waits += self.waits.section in ("step", "between")

        events = {DEVICE.type: lambda _: _Event(self.waits, wait)}
        with mock.patch.dict(EVENTS, events), mock.patch.object(torch.cuda, "synchronize", wait):
            yield


class _Event:
    """A moment in the simulated stream; the device has passed it when the host has next read."""

    def __init__(self, waits: Waits, wait: Callable[[], None]) -> None:
        self.waits, self.wait = waits, wait
        self.at, self.reads = time.perf_counter(), waits.reads.total()
        self.is_passed = False

    def query(self) -> bool:
        self.is_passed = self.is_passed or self.waits.reads.total() > self.reads
        return self.is_passed

    def elapsed_time(self, end_event: _Event) -> float:
        assert self.query()
        assert end_event.query(), "CUDA raises where an event is not passed"
        return 1e3 * (end_event.at - self.at)

    def synchronize(self) -> None:
        self.wait()
        self.is_passed = True


@dataclass(frozen=True)
class _Watched(Method):
    """A method that says when its drafter works."""

    inner: Method
    sections: Any

    @property
    def mode(self) -> str:
        return self.inner.mode

    def largest_block(self) -> int:
        return self.inner.largest_block()

    def build(self, context: Context) -> tuple[Drafter, Rule]:
        drafter, rule = self.inner.build(context)
        made: Any = drafter
        start, propose, close = drafter.on_verify_start, drafter.propose, drafter.close

        def on_verify_start(pending: Tree, rows: Rows) -> None:
            start(pending, rows)
            self.sections.start_step()

        def report_propose(outcome: Outcome) -> Tree:
            self.sections.end_step()
            return propose(outcome)

        def report_close() -> None:
            close()
            self.sections.end_run()

        made.on_verify_start, made.propose, made.close = (
            on_verify_start, report_propose, report_close,
        )  # fmt: skip
        return drafter, rule
