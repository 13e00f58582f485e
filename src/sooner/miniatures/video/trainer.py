"""Runs a recipe: stages, steps, resumable state, held-out checks, the finished checkpoint."""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from sooner.errors import SoonerError

from ..progress import Line
from ..training import schedule, threads
from . import architecture, bank, build, card, data, evaluate, losses, pacing
from .recipe import Recipe, Stage

CHECK_SEED = 10_007  # held-out clips for progress reports; training seeds are small numbers
DROPPED = (0.7, 0.95)  # fewest and most of a pruned row's visual tokens that are dropped


def _first_model(config: Recipe) -> Any:
    """The model that the first stage begins with: fresh, or that of the folder `start`."""
    depth = next((stage.layers for stage in config.stages if stage.layers), config.shape.layers)
    if not config.start:
        return architecture.build_model(dataclasses.replace(config.shape, layers=depth))
    if not (Path(config.start) / "config.json").is_file():
        raise SoonerError(f"no checkpoint at {config.start!r} to start from")
    begun = evaluate.load(config.start)[0]
    depth = begun.config.text_config.num_hidden_layers
    model = architecture.build_model(dataclasses.replace(config.shape, layers=depth))
    try:
        model.load_state_dict(begun.state_dict())
    except RuntimeError as error:
        raise SoonerError(f"{config.start!r} is not of the shape {config.shape}") from error
    return model


class Trainer:
    """One run. Its whole state is in `state_dict`, so a resumed run makes the same steps."""

    def __init__(
        self,
        out: Path,
        config: Recipe,
        *,
        threads: int | None = None,
        progress: bool = True,
        on_step: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self.out, self.config, self.threads = out, config, threads
        self.progress, self.on_step = progress, on_step
        self.stage_index = self.step = 0
        self.seconds = 0.0
        self.writer = data.Writer()
        self.rng = np.random.default_rng(config.seed)
        self.noise = torch.Generator().manual_seed(config.seed)
        with torch.random.fork_rng():  # HF draws first weights from the global generator
            torch.manual_seed(config.seed)
            self.model = _first_model(config)
            self.head = nn.Linear(config.shape.width, sum(data.LABEL_SIZES))
        self.optimizer: torch.optim.Optimizer | None = None
        self.bank: bank.SceneBank | None = None

    # --- the run

    def run(self, stop_after: int | None = None) -> Path:
        left = stop_after if stop_after is not None else math.inf
        with threads(self.threads), Line(self.progress) as line:
            while self.stage_index < len(self.config.stages):
                stage = self.config.stages[self.stage_index]
                self._enter(stage)
                while self.step < stage.steps:
                    if left <= 0:
                        self.save_state()
                        return self.out / "checkpoint"
                    begun = time.perf_counter()
                    report = self._step(stage)
                    self.seconds += time.perf_counter() - begun
                    left -= 1
                    self._report(stage, report, line)
                self.stage_index, self.step, self.optimizer, self.bank = (
                    self.stage_index + 1, 0, None, None,
                )  # fmt: skip
                self.save_state()
        self.finish()
        return self.out / "checkpoint"

    def finish(self) -> None:
        """Write the checkpoint and its card."""
        folder = self.out / "checkpoint"
        build.save(self.model, folder)
        card.write(folder, self.config, self.seconds)

    def _enter(self, stage: Stage) -> None:
        """Make what a stage needs, from its own seed, so that a resumed run makes the same."""
        if self.optimizer is not None:
            return
        if stage.layers:
            architecture.grow(self.model, stage.layers)
        for parameter in self.model.parameters():
            parameter.requires_grad_(True)
        if stage.kind == "language":
            for module in (self.model.model.vision_tower, self.model.model.multi_modal_projector):
                module.requires_grad_(False)
            seed = (self.config.seed, self.stage_index)
            self.bank = bank.encode(self.model, self.writer, self.config.bank, seed)
        self.optimizer = torch.optim.AdamW(
            [*self.model.parameters(), *self.head.parameters()],
            lr=stage.lr, betas=(0.9, 0.98), weight_decay=0.01,
        )  # fmt: skip

    # --- one step

    def _step(self, stage: Stage) -> dict[str, Any]:
        assert self.optimizer is not None
        for group in self.optimizer.param_groups:
            group["lr"] = stage.lr * schedule(self.step, stage.steps)
        loss, report = self._vision(stage) if stage.kind == "vision" else self._caption(stage)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        trained = [p for p in self.model.parameters() if p.grad is not None]
        nn.utils.clip_grad_norm_(trained, 1.0)
        self.optimizer.step()
        self.step += 1
        return {"loss": float(loss.detach()), **report}

    def _vision(self, stage: Stage) -> tuple[torch.Tensor, dict[str, Any]]:
        frames = data.sample_frames(self.rng, stage.size, self.noise)
        return losses.name_tokens(self.head, losses.see(self.model, frames.pixels), frames.labels)

    def _caption(self, stage: Stage) -> tuple[torch.Tensor, dict[str, Any]]:
        scenes = int(self.rng.integers(stage.scenes[0], stage.scenes[1] + 1))
        shown = stage.pace.draw(self.rng, scenes)
        frames = int(shown.sum())
        row = frames * architecture.POOLED**2 + 24 * (len(shown) + 1)
        # Rows share their number of frames, and have the scenes' lengths in orders of their own.
        spread = self.rng.permuted(np.tile(shown, (max(stage.size // row, 1), 1)), axis=1)
        extra: torch.Tensor | float = 0.0
        if stage.kind == "language":
            features, sentences = self._from_bank(spread)
        else:
            features, sentences, extra = self._from_pixels(spread)
        batch = self.writer.write(self.rng, sentences, frames)
        first, kept = len(self.writer.head), None
        if stage.kind == "language" and self.rng.random() < stage.pruned:
            video = range(first, first + features.shape[1] + 1)  # the newline's token is one too
            kept = data.kept_places(self.rng, len(spread), batch.ids.shape[1], video, DROPPED)
        loss, right = losses.predict(self.model, batch, features, first, stage.bf16, kept)
        return loss + extra, {"scenes": len(shown), "frames": frames, "right": right}

    def _from_bank(self, shown: np.ndarray) -> tuple[torch.Tensor, list[list[list[int]]]]:
        assert self.bank is not None
        picked = self.bank.draw(self.rng, *shown.shape)
        told = [self.bank.told(*pair) for pair in zip(picked, shown, strict=True)]
        return self.bank.gather(picked, shown), told

    def _from_pixels(
        self, shown: np.ndarray
    ) -> tuple[torch.Tensor, list[list[list[int]]], torch.Tensor]:
        clips = [pacing.paced_clip(self.rng, counts) for counts in shown]
        scenes = [
            scene
            for clip, counts in zip(clips, shown, strict=True)
            for scene, count in zip(clip.scenes, counts, strict=True)
            for _ in range(count)
        ]
        moments = np.concatenate([pacing.moments(counts) for counts in shown])
        drawn = data.draw_frames(scenes, moments, self.noise)
        tokens = losses.see(self.model, drawn.pixels)
        loss, _ = losses.name_tokens(self.head, tokens, drawn.labels)
        sentences = [[self.writer.sentence(scene) for scene in clip.scenes] for clip in clips]
        return tokens.unflatten(0, (len(shown), -1)).flatten(1, 2), sentences, 0.3 * loss

    # --- reports and state

    def _report(self, stage: Stage, report: dict[str, Any], line: Line) -> None:
        entry = {
            "stage": self.stage_index, "kind": stage.kind, "step": self.step,
            "steps": stage.steps, "seconds": round(self.seconds, 1), **report,
        }  # fmt: skip
        every = self.config.check_every
        if every and stage.kind != "vision" and self.step % every == 0:
            clips = evaluate.sample_clips(CHECK_SEED, 8, stage.scenes[1])
            found = evaluate.score_clips(self.model, build.build_processor(), clips)
            entry |= {"check": {key: round(value, 3) for key, value in found.items()}}
        line.show(entry)
        if self.on_step is not None:
            self.on_step(entry)
        if self.step % 20 == 0 or "check" in entry:
            self.out.mkdir(parents=True, exist_ok=True)
            with (self.out / "log.jsonl").open("a") as log:
                log.write(json.dumps(entry) + "\n")
        if self.step % self.config.save_every == 0:
            self.save_state()

    def save_state(self) -> None:
        """Write `state.pt`; the file is replaced whole, so a kill leaves the old one."""
        self.out.mkdir(parents=True, exist_ok=True)
        optimizer = self.optimizer
        state = {
            "recipe": dataclasses.asdict(self.config),
            "stage_index": self.stage_index,
            "step": self.step,
            "seconds": self.seconds,
            "layers": len(self.model.model.language_model.layers),
            "model": self.model.state_dict(),
            "head": self.head.state_dict(),
            "optimizer": optimizer.state_dict() if optimizer is not None else None,
            "rng": self.rng.bit_generator.state,
            "noise": self.noise.get_state(),
        }
        fresh = self.out / "state.pt.part"
        torch.save(state, fresh)
        fresh.replace(self.out / "state.pt")

    def resume(self) -> bool:
        """Load `state.pt` if there is one. ValueError if finished stages differ in the recipe."""
        path = self.out / "state.pt"
        if not path.exists():
            return False
        state = torch.load(path, weights_only=True)
        self._check_recipe(state)
        architecture.grow(self.model, state["layers"])
        self.model.load_state_dict(state["model"])
        self.head.load_state_dict(state["head"])
        self.stage_index, self.step = state["stage_index"], state["step"]
        self.seconds = state["seconds"]
        if state["optimizer"] is not None:
            self._enter(self.config.stages[self.stage_index])
            assert self.optimizer is not None
            self.optimizer.load_state_dict(state["optimizer"])
        self.rng.bit_generator.state = state["rng"]
        self.noise.set_state(state["noise"])
        return True

    def _check_recipe(self, state: dict[str, Any]) -> None:
        # Later stages may change between runs; what the weights already went through may not.
        begun = state["stage_index"] + (state["optimizer"] is not None)
        then, now = state["recipe"], dataclasses.asdict(self.config)
        same = then["stages"][:begun] == now["stages"][:begun]
        if not same or any(then.get(key) != now[key] for key in ("shape", "seed", "bank", "start")):
            raise ValueError(
                f"{self.out / 'state.pt'} is of another recipe; "
                "train with that recipe, into another folder, or with resume=False"
            )
