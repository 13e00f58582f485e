"""Records a real model's answers, trains a head of each format on them, and measures the heads."""

from __future__ import annotations

import json
import os
import statistics
import tempfile
from ast import literal_eval
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import torch

import sooner
from sooner.io import write_json
from sooner.models import adapt
from sooner.tasks.loading import ModelPair, load_pair
from sooner.tasks.train_draft.recording import DataSet, TrainingSample, record
from sooner.tasks.train_draft.settings import BLOCKS, Recipe, make_recipe
from sooner.tasks.train_draft.training import LOG, train

from ..drafters import depths
from ..goals import goal, worst
from ..real.run import RealBench, chat_inputs, messages
from ..real.settings import TUNED_ON
from ..real.texts import WORKLOADS
from ..run import Data, Keep, Progress, Recorder
from .settings import BLOCK, CHAIN, RECIPES, HeadsSettings
from .texts import training_prompts

PLAIN_GATE, CHAT_GATE, LOOKUP_GATE = 0.97, 1.15, 1.1
CHAIN_GATES = {"eagle": 1.3, "eagle3": 1.8, "dflash": 1.6}
CORRECTED_GATE = 1.05
"""Least figures of the goals, fixed before any result."""
ROWS, TRIAL = 8, 8
"""Prompts of a recorded batch; steps whose speed says how many steps a training has."""


def run(settings: HeadsSettings, progress: Progress = print, keep: Keep | None = None) -> Data:
    """Record, train, measure; return the result: `training`, a row for each format, and `arms`."""
    pair = load_pair(settings.model, sees=False, device=settings.device, dtype=settings.dtype)
    torch.set_num_threads(settings.threads or os.cpu_count() or 1)
    recorder = Recorder("heads", settings, goals, keep, model=pair.target.name)
    recorder.origin(pair.target.device, pair.target.model.dtype, settings.seed)
    data, heads = recording(pair, settings, progress), dict[str, Any]()
    training, arms = list[Data](), list[Data]()
    for kind in settings.formats:
        progress(f"training: {kind}")
        heads[kind], figures = train_head(pair, data, kind, settings)
        training.append(figures)
        recorder.add(training=training)
    for workload in settings.workloads:
        prompts = WORKLOADS[workload](TUNED_ON + settings.prompts)[TUNED_ON:]
        bench = RealBench(pair, [[prompt] for prompt in prompts], settings, methods(heads))
        for arm in bench.figures(bench.measure(progress), settings.seed):
            if arm["method"].endswith("-chain"):
                histogram = arm["acceptance_histogram"]
                arm["depths"] = depths(histogram, max([1, *histogram]))
            arms.append({"workload": workload, "rows": 1, **arm})
        recorder.add(arms=arms)
    return recorder.result


class LayerSelection(DataSet):
    """Some layers of a recording, which all formats share; none is the last, the output."""

    def __init__(self, data: DataSet, layers: Sequence[int]) -> None:
        options = {**data.index["options"], "layers": repr(tuple(layers))}
        super().__init__(data.folder, {**data.index, "options": options})
        recorded = literal_eval(data.index["options"]["layers"])
        self.count = len(recorded)
        self.places = [recorded.index(layer) for layer in layers or recorded[-1:]]

    def __getitem__(self, index: int) -> TrainingSample:
        sample = super().__getitem__(index)
        states = sample.states.unflatten(-1, (self.count, -1))  # [tokens, layers, hidden]
        return replace(sample, states=states[:, self.places].flatten(1))


def recording(pair: ModelPair, settings: HeadsSettings, progress: Progress) -> DataSet:
    """Return the answers that are learnt from, with the states that any format reads."""
    model = pair.target.model
    chats = [messages(each) for each in training_prompts(settings.samples, settings.seed)]
    batches = (
        chat_inputs(model, pair.target.tokenizer, chats[start : start + ROWS])
        for start in range(0, len(chats), ROWS)
    )
    count = adapt(model).layers
    read = [make_recipe(kind, RECIPES[kind]).recorded_layers(count) for kind in RECIPES]
    return record(
        model, batches, settings.folder / "data", settings.answer, shard_samples=ROWS,
        layers=sorted({count, *chain.from_iterable(read)}),
        on_batch=lambda index: progress(f"recorded {index['samples']} of {len(chats)} answers"),
    )  # fmt: skip


def train_head(
    pair: ModelPair, data: DataSet, kind: str, settings: HeadsSettings
) -> tuple[Any, Data]:
    """Return a trained head and the figures of its training; it goes on where it was stopped."""
    model, out = pair.target.model, settings.folder / kind
    adapter, plan = adapt(model), out / "steps.json"

    def recipe(steps: int, holdout: float = 0.03) -> Recipe:
        values = {**RECIPES[kind], "steps": steps, "seed": settings.seed, "holdout": holdout}
        values |= {"check_every": max(steps // 8, 1), "save_every": max(steps // 40, 1)}
        if "draft_vocab_size" in values:
            values["draft_vocab_size"] = min(values["draft_vocab_size"], adapter.vocab_size)
        return make_recipe(kind, values)

    read = LayerSelection(data, recipe(2).recorded_layers(adapter.layers))
    if settings.steps is None and not plan.is_file():
        with tempfile.TemporaryDirectory() as folder:
            trial = train(model, read, folder, recipe(1000, 1e-6), stop_after=TRIAL)
        rate = TRIAL / max(trial.config.provenance["seconds"], 0.1)
        write_json(max(int(settings.minutes * 60 * rate), 2), plan)
    head = train(model, read, out, recipe(settings.steps or json.loads(plan.read_text())))
    origin, log = head.config.provenance, out / LOG
    losses = [json.loads(line)["loss"] for line in log.read_text().splitlines()]
    return head, {
        "format": kind, "parameters": sum(weight.numel() for weight in head.parameters()),
        "bytes": sum(path.stat().st_size for path in (out / "head").iterdir()),
        "samples": len(data), "steps": origin["step"], "seconds": origin["seconds"],
        "steps_per_second": origin["step"] / max(origin["seconds"], 0.1),
        "first_loss": losses[0], "last_loss": losses[-1],
        "held_out": origin["acceptance"]["chain"],
    }  # fmt: skip


def methods(heads: dict[str, Any]) -> dict[str, sooner.Method]:
    """Return the methods of heads by arm: as they are built, and chains of a fixed length."""
    made: dict[str, sooner.Method] = {}
    for kind, head in heads.items():
        method: Any = sooner.DFlash if kind in BLOCKS else sooner.Eagle
        drafts = {"num_draft_tokens": BLOCK["block_size"] - 1}  # as many for each format
        fixed = drafts if kind in BLOCKS else CHAIN
        made |= {kind: method(head), f"{kind}-chain": method(head, **fixed)}
    return made


def chain_lengths(arms: Sequence[Data], kind: str) -> list[tuple[str, float]]:
    """Return the mean acceptance length of a format's chains on each workload."""
    chains = [arm for arm in arms if arm["method"] == f"{kind}-chain"]
    return [(arm["workload"], arm["mean_acceptance_length"]) for arm in chains]


def goals(result: Data) -> list[Data]:
    """Return a row for each goal whose arms were measured."""
    arms = result.get("arms") or []
    heads = [arm for arm in arms if arm["method"] in RECIPES and arm.get("decode_speedup")]
    points = [(f"{arm['method']}, {arm['workload']}", arm["decode_speedup"]) for arm in heads]
    judged = worst("each head by default over plain, every workload, ×", PLAIN_GATE, points)
    lengths = {kind: chain_lengths(arms, kind) for kind in RECIPES}
    for kind, bound in CHAIN_GATES.items():
        judged += worst(
            f"{kind}-chain: mean acceptance length, every workload", bound, lengths[kind]
        )
    independent = dict(lengths["dflash"])
    for kind in BLOCKS[1:]:
        ratios = [length / independent[of] for of, length in lengths[kind] if of in independent]
        mean = statistics.mean(ratios) if ratios else None
        judged.append(goal(f"{kind}-chain: length over dflash-chain's, mean", CORRECTED_GATE, mean))
    chat = {arm["method"]: arm for arm in arms if arm["workload"] == "chat"}
    speed = max((arm["decode_speedup"] for arm in heads if arm["workload"] == "chat"), default=None)
    lookup = chat.get("prompt-lookup", {}).get("decode_speedup")
    over = speed / lookup if speed and lookup else None
    judged.append(goal("chat: the fastest head over plain, ×", CHAT_GATE, speed))
    judged.append(goal("chat: the fastest head over prompt-lookup, ×", LOOKUP_GATE, over))
    return judged
