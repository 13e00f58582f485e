"""Imitating the arm's experts, as a lesson of the common trainer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, smooth_l1_loss

from sooner.models.openvla.statistics import ActionTokens
from sooner.tasks.train_draft.log import ProgressLine

from .. import cards
from ..lessons import show_count
from ..recipes import plain
from ..robot import architecture, build, words
from ..robot.data import pixels, prompt_ids
from ..robot.losses import said_states
from . import collect, gauges
from .recipe import ArmRecipe, ArmStage
from .simulator import NAMES, TASKS

FIXED = ("shape", "episodes", "held", "noise", "lean", "seed", "data_seed")
"""Fields of the recipe in which a resumed run must agree."""
CHUNK = 256
NEAR = 9
"""Bins that reports call near: the paper's tolerance."""
WORDS = " ".join(dict.fromkeys(" ".join(task.instruction for task in TASKS.values()).split()))
FORM = architecture.PolicyForm(gauges.SIDE, horizon=1, data_set="robosuite", words=WORDS)
STATISTICS = {
    "q01": [-1.0] * len(NAMES),
    "q99": [1.0] * len(NAMES),
    "mask": [True] * (len(NAMES) - 1) + [False],
    "names": list(NAMES),
}
"""Bins span the range of the robot's own action."""


@dataclass(frozen=True)
class ArmBatch:
    """Moments, prompts padded in front.

    Attributes:
        ids: prompt and action tokens, `[rows, width]`.
        mask: 1 on real tokens, `[rows, width]`.
        pixels: `[rows, 6, SIDE, SIDE]`.
        actions: `[rows, 7]`.
    """

    ids: Tensor
    mask: Tensor
    pixels: Tensor
    actions: Tensor


class ArmReader:
    """Makes batches of records, which are those of `collect.load`."""

    def __init__(self, records: dict[str, np.ndarray]) -> None:
        self.records = records
        tokens = ActionTokens(words.TEXT + words.ACTIONS, words.ACTIONS)
        self.ids = torch.from_numpy(tokens.encode(records["actions"].astype(np.float64)))
        tokenizer = words.build_tokenizer(WORDS)
        told = [words.PROMPT.format(instruction=TASKS[name].instruction) for name in gauges.ORDER]
        prompts = [prompt_ids(tokenizer(one).input_ids, gauges.GRID**2) for one in told]
        width = max(map(len, prompts))
        self.prompts = torch.tensor([[0] * (width - len(one)) + one for one in prompts])
        self.masks = torch.tensor([[0] * (width - len(one)) + [1] * len(one) for one in prompts])

    def batch(self, index: np.ndarray) -> ArmBatch:
        """The records `index`."""
        tasks = torch.from_numpy(self.records["tasks"][index])
        said = self.ids[torch.from_numpy(index)]
        return ArmBatch(
            torch.cat([self.prompts[tasks], said], 1),
            torch.cat([self.masks[tasks], torch.ones_like(said)], 1),
            pixels(gauges.draw(self.records["numbers"][index])),
            torch.from_numpy(self.records["actions"][index]),
        )


class ArmLesson:
    """Demonstrations and the policy.

    Args:
        out: gets the folder `data`, unless its demonstrations are there.
        config: the recipe.
        progress: show a line while demonstrations are made.

    Raises:
        SoonerError: demonstrations have to be made and the simulator is not installed.
    """

    def __init__(self, out: Path, config: ArmRecipe, progress: bool = False) -> None:
        self.config = config
        noise = collect.ArmNoise(config.noise, config.lean)
        with ProgressLine(progress) as line:
            for name, count in config.episodes.items():
                tell = partial(show_count, line, f"demonstrations of {name}", count)
                collect.collect(out / "data", name, count, config.data_seed, noise, tell)
        records = collect.load(out / "data")
        self.reader = ArmReader(records)
        counts = np.array([config.episodes[name] for name in gauges.ORDER])
        is_held = records["episodes"] >= counts[records["tasks"]] - config.held
        self.kept, self.held = np.flatnonzero(~is_held), np.flatnonzero(is_held)
        with torch.random.fork_rng():  # HF draws first weights from the global generator
            torch.manual_seed(config.seed)
            self.policy = architecture.build_model(config.shape, STATISTICS, FORM)
            self.direct = nn.Linear(config.shape.width, len(NAMES))
        self.model: nn.Module = nn.ModuleDict({"policy": self.policy, "direct": self.direct})

    def enter(self, stage: ArmStage, index: int) -> None:
        """Nothing hangs on the stage."""

    def shape_like(self, state: dict[str, Tensor]) -> None:
        """The depth never changes."""

    def loss(self, stage: ArmStage, rng: np.random.Generator) -> tuple[Tensor, dict[str, Any]]:
        return self._loss(self.reader.batch(rng.choice(self.kept, stage.rows)))

    def _loss(self, batch: ArmBatch) -> tuple[Tensor, dict[str, Any]]:
        """Cross-entropy of the demonstrated bins, one-hot, and the action itself regressed from
        the last prompt token by a layer that is dropped in the end."""
        seen = self.policy.model.see(batch.pixels)
        wanted = batch.ids[:, -len(NAMES) :]
        states = said_states(self.policy, seen, batch.ids, batch.mask, len(NAMES))
        logits = self.policy.lm_head(states).float()
        loss = cross_entropy(logits.flatten(0, 1), wanted.flatten())
        direct = smooth_l1_loss(self.direct(states[:, 0].float()), batch.actions, beta=0.1)
        first = words.TEXT
        best = logits[..., first : first + words.ACTIONS].argmax(-1) + first
        off = (best - wanted).abs()[:, :-1].float()  # the fingers are open or closed
        report = {
            "nats": round(float(loss.detach()), 3),
            "off": round(float(off.mean()), 2),
            "near": round(float((off <= NEAR).float().mean()), 3),
            "fingers": round(float((best == wanted)[:, -1].float().mean()), 4),
        }
        return loss + direct, report

    def after_step(self, rng: np.random.Generator) -> None:
        """Does nothing."""

    @torch.no_grad()
    def check(self) -> dict[str, Any]:
        """How well held-out demonstrations are followed, by task: nats of a bin, mean distance of
        the likeliest bin, share within 9 bins, and how often the fingers do the same; earlier bins
        given."""
        tasks = self.reader.records["tasks"]
        found = {}
        for task, name in enumerate(gauges.ORDER):
            held = self.held[tasks[self.held] == task]
            parts = [
                self._loss(self.reader.batch(held[at : at + CHUNK]))[1]
                for at in range(0, len(held), CHUNK)
            ]
            found[name] = {
                key: round(float(np.mean([part[key] for part in parts])), 3) for key in parts[0]
            }
        return found

    def save(self, folder: Path, steps: int, seconds: float) -> None:
        build.save(self.policy, folder, WORDS)
        told = {
            "part": "target",
            "parameters": architecture.parameters(self.policy),
            "held_out": self.check(),
        }
        cards.write(folder, told, plain(self.config), steps, seconds)
