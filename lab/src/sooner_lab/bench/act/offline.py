"""The arms on recorded observations, one at a time: speed and acceptance."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from sooner.models.openvla.statistics import decode_actions
from sooner.parity import reference_run
from sooner.tasks.act.observation import Observation

from ..hf_arms import run as hf_run
from ..run import Arm, ArmSamples, TimedRun, judge, measure, row
from .arms import ActContender
from .observations import Recorded
from .settings import ActSettings

Progress = Callable[[str], None]
PERCENTILES = (50, 95, 99)


class Offline:
    """Times every contender on every observation.

    Args:
        contenders: plain first.
        recorded: the observations.
    """

    def __init__(self, contenders: list[ActContender], recorded: list[Recorded]) -> None:
        self.contenders, self.recorded = contenders, recorded
        self.policy = contenders[0].policy

    def run(self, settings: ActSettings, progress: Progress) -> list[dict[str, Any]]:
        """A row of figures for each arm, over all observations and by environment."""
        arms = [Arm(arm.name, self._runner(arm), arm.mode) for arm in self.contenders]
        measured = measure(arms, len(self.recorded), settings.repeats, progress)
        progress("parity")
        judge(measured, self._reference)
        return [
            self._row(contender, arm, measured[0])
            for contender, arm in zip(self.contenders, measured, strict=True)
        ]

    def _runner(self, contender: ActContender) -> Callable[[int], TimedRun]:
        if contender.method is None:
            return self._hf

        def run(index: int) -> TimedRun:
            action = contender.act([self.recorded[index].seen])[0]
            stats = action.stats
            output_ids = [action.ids.flatten().tolist()]
            return TimedRun(
                output_ids, stats.decode_seconds, action.seconds, stats.decode_tokens, stats
            )

        return run

    def _hf(self, index: int) -> TimedRun:
        start = time.perf_counter()
        inputs, max_tokens = self._inputs(self.recorded[index].seen), self._tokens(index)
        tokens, seconds, count = hf_run(self.policy.model, inputs, max_tokens, eos_token_id=None)
        return TimedRun([tokens], seconds, time.perf_counter() - start, count)

    def _inputs(self, seen: Observation) -> dict[str, Any]:
        made = self.policy.processor([seen.image], [seen.instruction])
        return {name: value.to(self.policy.adapter.device) for name, value in made.items()}

    def _tokens(self, index: int) -> int:
        key = self.policy.key_of(self.recorded[index].seen)
        return self.policy.horizon * self.policy.statistics[key].dims

    def _reference(self, index: int) -> tuple[list[int], list[Any]]:
        """Return the tokens of HF's own incremental `generate`, and their scores."""
        inputs, count = self._inputs(self.recorded[index].seen), self._tokens(index)
        tokens, scores = reference_run(
            self.policy.model, inputs, max_new_tokens=count, eos_token_id=None
        )
        return tokens[0], scores[0]

    def _row(self, contender: ActContender, arm: ArmSamples, plain: ArmSamples) -> dict[str, Any]:
        figures = row(arm, plain) | {"tolerance": contender.tolerance, "env": None}
        figures |= self._latency(arm) | {"error": self._error(arm)}
        figures["by_env"] = [self._of(arm, plain, env) for env in self._envs()]
        return figures

    def _envs(self) -> list[str]:
        return list(dict.fromkeys(record.env for record in self.recorded))

    def _of(self, arm: ArmSamples, plain: ArmSamples, env: str) -> dict[str, Any]:
        """Returns figures over one environment's observations alone."""
        part, base = (self._only(each, env) for each in (arm, plain))
        figures = row(part, base)
        names = ("decode_speedup", "e2e_speedup", "mean_acceptance_length")
        return {"env": env, **{name: figures.get(name) for name in names}}

    def _only(self, arm: ArmSamples, env: str) -> ArmSamples:
        indices = [index for index, each in enumerate(self.recorded) if each.env == env]
        runs = len(arm.samples[0])
        parity = [
            each for index in indices for each in arm.parity[index * runs : (index + 1) * runs]
        ]
        return ArmSamples(arm.arm, [arm.samples[index] for index in indices], parity)

    def _latency(self, arm: ArmSamples) -> dict[str, Any]:
        """Actions a second and percentiles of a call, from the picture to the action."""
        if arm.is_red:
            return {}
        seconds = [sample.e2e_seconds for runs in arm.samples for sample in runs]
        percentiles = {
            f"p{each}_ms": 1000 * float(np.percentile(seconds, each)) for each in PERCENTILES
        }
        return {
            "actions_per_second": self.policy.horizon / float(np.median(seconds)),
            **percentiles,
        }

    def _error(self, arm: ArmSamples) -> float | None:
        """Mean distance from what was done when the observations were recorded, each number in
        shares of its range; only the action's first step is compared."""
        distances = []
        for runs, each in zip(arm.samples, self.recorded, strict=True):
            if each.action is None:
                continue
            stats = self.policy.statistics[self.policy.key_of(each.seen)]
            predicted = decode_actions(np.array(runs[0].tokens), self.policy.tokens, stats)[0, 0]
            done = np.atleast_2d(each.action)[0]
            span = np.where(stats.mask, stats.q99 - stats.q01, 2.0)
            distances.append(float((np.abs(predicted - done) / span).mean()))
        return float(np.mean(distances)) if distances else None
