"""One rank of a tensor-parallel run on CPUs: everything that `test_sharded` looks at, as JSON.

Run by that test as `python sharded_ranks.py FOLDER RANK`, once for each rank.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import json
import os
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import distributed
from transformers import StoppingCriteriaList
from transformers.distributed import DistributedConfig

import sooner
import tiny
from sooner.engine.interface import Outcome
from sooner.engine.tree import Tree
from sooner.methods.parallel.drafter import ParallelDrafter

RANKS = 2
FAMILIES = ("qwen2_5_vl", "llava_onevision")
GREEDY: dict[str, Callable[[Any], sooner.Method | None]] = {
    "plain": lambda draft: None,
    "prompt-lookup": lambda draft: sooner.PromptLookup(num_draft_tokens=3),
    "speculative": lambda draft: sooner.Speculative(draft),  # its window follows the clock
    "sd-tree": lambda draft: sooner.SDTree(draft),
    "parallel-paper": lambda draft: sooner.ParallelVLM(
        draft, prune=0.5, min_visual=0, num_draft_tokens=4, schedule="paper"
    ),
    "parallel-thread": lambda draft: sooner.ParallelVLM(
        draft, prune=0.5, min_visual=0, placement="thread"
    ),
    "parallel-process": lambda draft: sooner.ParallelVLM(
        draft, prune=0.5, min_visual=0, placement="process"
    ),
}
SEEDED: dict[str, Callable[[Any], sooner.Method | None]] = {
    "plain": lambda draft: None,
    "speculative": lambda draft: sooner.Speculative(draft, num_draft_tokens=3),
}
"""What a seed decides alone, whatever the clock says."""
LIMIT = 10
SAMPLING = {"do_sample": True, "temperature": 0.8, "top_k": 20}


def plan() -> dict[str, Any]:
    """What `from_pretrained` calls a plan in this version of transformers, made anew for each."""
    if "tp_plan" in inspect.signature(DistributedConfig).parameters:
        return {"distributed_config": DistributedConfig(tp_plan="auto")}
    return {"tp_plan": "auto"}


def inputs(family: str) -> dict[str, Any]:
    """Two ragged rows with a video each."""
    return tiny.inputs(family, "video", rows=2)


class StopsAt:
    """A criterion that ends rows at a token of its own, as a clock does that runs elsewhere."""

    def __init__(self, width: int, count: int) -> None:
        self.width, self.count = width, count

    def __call__(self, ids: torch.Tensor, scores: Any, **options: Any) -> torch.Tensor:
        return torch.full((len(ids),), ids.shape[1] >= self.width + self.count)


class Rank:
    """What one rank says."""

    def __init__(self, folder: Path, number: int) -> None:
        self.folder, self.number = folder, number
        self.report: dict[str, Any] = {}
        self.drafted: tuple[dict[int, int], int] = {}, 0

    def run(self) -> None:
        for family in FAMILIES:
            self.family(family)
        self.criterion()
        self.failures()
        self.refusals()

    def load(self, family: str) -> Any:
        kind = type(tiny.model(family))
        options = {"dtype": torch.float64, "attn_implementation": "sdpa", **plan()}
        return kind.from_pretrained(self.folder / family, **options).eval()

    def method(self, family: str, make: Callable[[Any], sooner.Method | None]) -> Any:
        """The method on the first rank; the others have neither draft nor method."""
        return make(tiny.noisy(family)) if self.number == 0 else None

    def say(self, model: Any, family: str, method: Any, **options: Any) -> Any:
        options = {"max_new_tokens": LIMIT, "do_sample": False, **options}
        try:
            made = sooner.generate(model, inputs(family), method, **options)
            self.drafted = dict(made.stats.acceptance_histogram), made.stats.num_draft_tokens
            return made.tokens
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    def family(self, family: str) -> None:
        model = self.load(family)
        weight = model.get_decoder().layers[0].self_attn.q_proj.weight
        self.report[f"{family} shard"] = [weight.to_local().numel(), weight.numel()]
        for name, make in GREEDY.items():
            method = self.method(family, make)
            self.report[f"{family} greedy {name}"] = self.say(model, family, method)
            self.report[f"{family} drafted {name}"] = self.drafted
        sampling = {**SAMPLING, "seed": self.number}  # another seed on every rank
        for name, make in {**GREEDY, **SEEDED}.items():
            method = self.method(family, make)
            self.report[f"{family} sampled {name}"] = self.say(model, family, method, **sampling)

    def criterion(self) -> None:
        """Each rank would stop at another token."""
        family = FAMILIES[0]
        width = inputs(family)["input_ids"].shape[1]
        criteria = StoppingCriteriaList([StopsAt(width, 6 - 2 * self.number)])  # type: ignore[list-item]
        self.report["criterion"] = self.say(
            self.load(family), family, None, stopping_criteria=criteria
        )

    def failures(self) -> None:
        """The first rank alone fails in every moment between two forwards; then all go on."""
        family = FAMILIES[0]
        model = self.load(family)

        def drafter(monkeypatch: Any) -> Any:
            propose = ParallelDrafter.propose

            def fail(instance: ParallelDrafter, outcome: Outcome) -> Tree:
                if len(outcome.rows.output(0)) > 2:
                    raise RuntimeError("the draft is broken")
                return propose(instance, outcome)

            monkeypatch(ParallelDrafter, "propose", fail)

        def callback(row: int, tokens: list[int], drafted: int) -> None:
            if self.number == 0:
                raise RuntimeError("the caller has enough")

        make = GREEDY["parallel-thread"]
        with patched() as patch:
            drafter(patch)
            self.report["failed drafter"] = self.say(model, family, self.method(family, make))
        self.report["failed callback"] = self.say(model, family, None, on_tokens=callback)
        method = self.method(family, lambda draft: sooner.Eagle(tiny.head(family)))
        self.report["failed request"] = self.say(model, family, method)
        self.report["after failures"] = self.say(model, family, self.method(family, make))

    def refusals(self) -> None:
        model = self.load(FAMILIES[0])
        self.report["prefill"] = self.say(model, FAMILIES[0], None, prefill=sooner.FastV())


@contextlib.contextmanager
def patched() -> Any:
    """Attributes set for a while."""
    before: list[tuple[Any, str, Any]] = []

    def patch(owner: Any, name: str, value: Any) -> None:
        before.append((owner, name, copy.copy(getattr(owner, name))))
        setattr(owner, name, value)

    try:
        yield patch
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)


def join(store: Path, number: int) -> None:
    """Meet the other ranks; who does not come within minutes is not waited for."""
    distributed.init_process_group(
        "gloo",
        init_method=f"file://{store}",
        rank=number,
        world_size=RANKS,
        timeout=timedelta(minutes=5),
    )


if __name__ == "__main__":
    folder, number = Path(sys.argv[1]), int(sys.argv[2])
    os.environ.update(RANK=str(number), LOCAL_RANK=str(number), WORLD_SIZE=str(RANKS))
    torch.set_num_threads(1)
    join(folder / "store", number)
    rank = Rank(folder, number)
    rank.run()
    (folder / f"rank-{number}.json").write_text(json.dumps(rank.report))
    distributed.destroy_process_group()
