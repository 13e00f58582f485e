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

from ..progress import Line
from ..training import schedule, threads
from . import architecture, build, card, data, evaluate, losses, world
from .recipe import Recipe, Stage

CHECK_SEED = 10_007  # held-out clips for progress reports; training seeds are small numbers


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
        depth = next((stage.layers for stage in config.stages if stage.layers), config.shape.layers)
        with torch.random.fork_rng():  # HF draws first weights from the global generator
            torch.manual_seed(config.seed)
            self.model = architecture.build_model(dataclasses.replace(config.shape, layers=depth))
            self.head = nn.Linear(config.shape.width, sum(data.LABEL_SIZES))
        self.optimizer: torch.optim.Optimizer | None = None
        self.bank: data.SceneBank | None = None

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
            self.bank = self._encode_bank()
        self.optimizer = torch.optim.AdamW(
            [*self.model.parameters(), *self.head.parameters()],
            lr=stage.lr, betas=(0.9, 0.98), weight_decay=0.01,
        )  # fmt: skip

    def _encode_bank(self) -> data.SceneBank:
        seed = (self.config.seed, self.stage_index)
        rng = np.random.default_rng(seed)
        noise = torch.Generator().manual_seed(int(rng.integers(2**31)))
        scenes = [world.sample_scene(rng) for _ in range(self.config.bank)]
        moments = np.array(data.MOMENTS)
        features = []
        with torch.no_grad():
            for begin in range(0, len(scenes), 32):
                some = scenes[begin : begin + 32]
                repeated = [scene for scene in some for _ in moments]
                frames = data.draw_frames(repeated, np.tile(moments, len(some)), noise)
                tokens = losses.see(self.model, frames.pixels)  # [scenes * moments, tokens, width]
                features.append(tokens.unflatten(0, (len(some), len(moments))))
        sentences = [self.writer.sentence(scene) for scene in scenes]
        return data.SceneBank(scenes, torch.cat(features), sentences)

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
        frames = 2 * scenes
        if self.rng.random() < stage.any_frames:
            frames = int(self.rng.integers(2 * scenes, 3 * scenes + 2))
        row = frames * architecture.POOLED**2 + 24 * (scenes + 1)
        rows = max(stage.size // row, 1)
        extra: torch.Tensor | float = 0.0
        if stage.kind == "language":
            features, sentences = self._from_bank(rows, scenes, frames)
        else:
            features, sentences, extra = self._from_pixels(rows, scenes, frames)
        batch = self.writer.write(self.rng, sentences, frames)
        loss, right = losses.predict(self.model, batch, features, len(self.writer.head), stage.bf16)
        return loss + extra, {"scenes": scenes, "right": right}

    def _from_bank(
        self, rows: int, scenes: int, frames: int
    ) -> tuple[torch.Tensor, list[list[list[int]]]]:
        assert self.bank is not None
        picked = self.bank.draw(self.rng, rows, scenes)
        sentences = [[self.bank.sentences[scene] for scene in row] for row in picked]
        return self.bank.gather(picked, frames), sentences

    def _from_pixels(
        self, rows: int, scenes: int, frames: int
    ) -> tuple[torch.Tensor, list[list[list[int]]], torch.Tensor]:
        clips = [world.sample_clip(self.rng, scenes) for _ in range(rows)]
        indices = world.sample_indices(clips[0].total_frames, frames)
        shown = [clip.scenes[index // world.SCENE_FRAMES] for clip in clips for index in indices]
        moments = np.tile((indices % world.SCENE_FRAMES) / world.SCENE_FRAMES, rows)
        drawn = data.draw_frames(shown, moments, self.noise)
        tokens = losses.see(self.model, drawn.pixels)
        loss, _ = losses.name_tokens(self.head, tokens, drawn.labels)
        sentences = [[self.writer.sentence(scene) for scene in clip.scenes] for clip in clips]
        return tokens.unflatten(0, (rows, frames)).flatten(1, 2), sentences, 0.3 * loss

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
        if not same or any(then[key] != now[key] for key in ("shape", "seed", "bank")):
            raise ValueError(
                f"{self.out / 'state.pt'} is of another recipe; "
                "train with that recipe, into another folder, or with resume=False"
            )
