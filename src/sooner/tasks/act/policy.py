"""A policy: observations of several robots in one ragged batch, an action for each; how far relaxed
acceptance may go, and how far an action is from exact decoding's."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from ... import miniatures
from ...checks import check_choice, check_number
from ...engine.loop import run
from ...engine.row_sampling import SamplingParams
from ...engine.stats.run import Stats
from ...errors import FieldError, SoonerError, unknown
from ...methods import Autoregressive, Method
from ...methods.controller import Quickest
from ...methods.tolerance import Tolerance
from ...models import adapt, model_types
from ...models.openvla.adapter import OpenVLA
from ...models.openvla.statistics import ActionStatistics, ActionTokens, decode_actions
from .. import loading
from .observation import Observation

MINIATURE = "robot"
METHODS = ("plain", "strict", "relaxed", "auto")
GPU_NODES, CPU_NODES = 50, 16
"""Nodes of a strict tree: on a GPU, verifying the paper's 50 costs a plain step (table 4)."""

DEFAULT_BINS = 9
"""The paper's choice for three of its four suites (table 2); its long one has 5."""


@dataclass(frozen=True, eq=False)
class Distance:
    """Distances that actions have from each other, by dimension.

    Attributes:
        count: numbers that were compared, `[dims]`.
        mean_bins, max_bins: absolute distance in bins, `[dims]`.
        widths: of a bin, in the unit of the action, `[dims]`.
    """

    count: np.ndarray
    mean_bins: np.ndarray
    max_bins: np.ndarray
    widths: np.ndarray

    @property
    def mean(self) -> np.ndarray:
        """Returns the mean distance in the unit of the action, `[dims]`."""
        return self.mean_bins * self.widths

    @property
    def max(self) -> np.ndarray:
        """Returns the largest distance in the unit of the action, `[dims]`."""
        return self.max_bins * self.widths

    @classmethod
    def pooled(cls, parts: Sequence[Distance]) -> Distance:
        """Returns the distance of several actions of one robot, of all their numbers."""
        count = np.sum([part.count for part in parts], axis=0)
        total = np.sum([part.mean_bins * part.count for part in parts], axis=0)
        largest = np.max([part.max_bins for part in parts], axis=0)
        return cls(count, total / np.maximum(count, 1), largest, parts[0].widths)

    def as_dict(self) -> dict[str, Any]:
        """Returns lists over the dimensions, ready for JSON."""
        names = ("count", "mean_bins", "max_bins", "mean", "max")
        return {name: getattr(self, name).tolist() for name in names}


@dataclass(frozen=True, eq=False)
class Action:
    """The actions that a policy takes next, and how they were decoded.

    Attributes:
        values: in physical units, float64 `[horizon, dims]`.
        ids: token ids as generated, `[horizon, dims]`.
        clipped: which of them are no action and were read as the nearest end, as OpenVLA does,
            `[horizon, dims]` bool.
        unnorm_key: data set whose statistics were applied.
        names: of the dimensions, where the statistics tell them.
        method: what decoded it: `plain`, `strict` or `relaxed`.
        mode: `exact` or `relaxed`.
        deviation: of accepted draft tokens from the target's own choices at their places;
            `None` for exact actions.
        from_exact: of the action from that of plain decoding; `None` unless compared.
        stats: of the batch that it was decoded in.
        seconds: that the batch took, pictures and prompts included.
    """

    values: np.ndarray
    ids: np.ndarray
    clipped: np.ndarray
    unnorm_key: str
    names: tuple[str, ...] | None
    method: str
    mode: str
    deviation: Distance | None
    from_exact: Distance | None
    stats: Stats
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """Returns data for JSON, without the statistics of the batch."""
        data: dict[str, Any] = {
            "action": self.values.tolist(), "ids": self.ids.tolist(),
            "clipped": bool(self.clipped.any()), "unnorm_key": self.unnorm_key,
            "names": None if self.names is None else list(self.names), "method": self.method,
            "mode": self.mode, "seconds": self.seconds, "rows": self.stats.rows,
            "forwards": self.stats.nfe, "acceptance_length": self.stats.mean_acceptance_length,
        }  # fmt: skip
        for name in ("deviation", "from_exact"):
            distance = getattr(self, name)
            data[name] = None if distance is None else distance.as_dict()
        return data


class Policy:
    """An OpenVLA policy that can be decoded in several ways.

    `plain` decodes token by token, `strict` speculates with the draft head and says the same,
    `relaxed` also accepts what is near, and `auto` runs whichever is measured to be quickest: of
    `plain` and `relaxed` with an allowance, else of the exact ones, `plain` and `strict`.

    Args:
        model: an `OpenVLAForActionPrediction` in eval mode.
        processor: makes inputs of pictures and instructions, `processor(pictures, instructions)`.
        head: an EAGLE draft head that was trained for this model.
        allowance: how far `relaxed` may go, in bins: for all dimensions but the gripper, the
            paper's 9 by default, or for each.
        name: of the model, for reports.
        unnorm_key: data set of observations that name none.
        options: of `Eagle`. By default strict trees have the paper's 50 nodes on a GPU and 16
            elsewhere, and relaxed drafts are chains as long as an action; `nodes="auto"` takes as
            many as measurably pay, which takes some calls to find out.

    Attributes:
        pace: measured seconds of a call, by method and batch, of each number of dimensions, since
            robots of several are decoded apart.

    Raises:
        SoonerError: a checkpoint without statistics, an allowance that does not fit its actions,
            or a head of another target.
    """

    def __init__(
        self, model: Any, processor: Any, head: Any = None, *,
        allowance: int | tuple[int, ...] | None = None, name: str = "",
        unnorm_key: str | None = None, options: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        self.model, self.processor, self.head = model, processor, head
        self.name = name or type(model).__name__
        self.adapter = adapt(model)
        self.tokens = ActionTokens.of(model.config)
        self.horizon = int(model.config.action_horizon)
        self.options = dict(options or {})
        stats: Mapping[str, Any] = model.config.norm_stats or {}
        self.statistics = {key: ActionStatistics.choose(stats, key) for key in stats}
        if not self.statistics:
            ActionStatistics.choose(stats)  # says what is missing
        self.allowance = DEFAULT_BINS if allowance is None else allowance
        if head is not None:
            head.check(self.adapter)
        if unnorm_key is not None and unnorm_key not in self.statistics:
            raise unknown("unnorm_key", unnorm_key, self.statistics)
        only = next(iter(self.statistics)) if len(self.statistics) == 1 else None
        self.unnorm_key = unnorm_key or only
        for key in [unnorm_key] if unnorm_key is not None else self.statistics:
            Tolerance(self.tokens, self.statistics[key].dims, self.allowance)
        self._built: dict[tuple[str, int], Method] = {}
        quick = "strict" if allowance is None else "relaxed"
        ways = ("plain",) if head is None else ("plain", quick)
        self.pace = {entry.dims: Quickest(ways) for entry in self.statistics.values()}

    @classmethod
    def load(
        cls, model: str | None = None, head: str | None = None, *, device: str = "auto",
        dtype: str = "auto", device_map: Any = None, **options: Any,
    ) -> Policy:  # fmt: skip
        """Loads a policy.

        Args:
            model: hub id or folder of an OpenVLA checkpoint; `None` takes the bundled miniature,
                with its head unless another is given.
            head: folder of a draft head that was trained for it.
            device, dtype, device_map: as in `sooner.tasks.loading.load_pair`.
            options: `allowance`, `unnorm_key` and `options` of `Policy`.

        Raises:
            SoonerError: no such model, a model that is no policy, or as `Policy`.
        """
        where = loading.pick_device(device)
        kind = loading.pick_dtype(dtype, where, is_small=model is None)
        if model is None:
            small = miniatures.find(MINIATURE)
            model, head = str(small.target), head or (str(small.head) if small.head else None)
        if (actual := model_types.model_type(model)) not in OpenVLA.model_types:
            raise SoonerError(
                f"model '{model}' of type '{actual}' is no robot policy; give one of type "
                f"{', '.join(OpenVLA.model_types)}"
            )
        loaded = loading.load(model, where, kind, device_map)
        drafter = None
        if head is not None:
            from ...methods.trained import load_for

            weight = loaded.model.get_input_embeddings().weight
            drafter = load_for("eagle", head).to(weight.device, weight.dtype)
        return cls(loaded.model, loaded.processor, drafter, name=model, **options)

    @property
    def default_method(self) -> str:
        return "plain" if self.head is None else "auto"

    def check_method(self, name: str) -> str:
        """Returns `name`, if this policy can decode so.

        Raises:
            SoonerError: an unknown one, or one that needs a head.
        """
        check_choice("method", name, METHODS)
        if name in ("strict", "relaxed") and self.head is None:
            raise SoonerError(
                f"method '{name}' needs a draft head for '{self.name}'; give --head (`sooner "
                "train draft` trains one), or --method plain"
            )
        return name

    def key_of(self, observation: Observation) -> str:
        """Returns the data set whose statistics apply.

        Raises:
            FieldError: an unknown one (lists the known), or none where there are several.
        """
        key = observation.unnorm_key or self.unnorm_key
        if key is None:
            raise FieldError(
                "unnorm_key",
                f"unnorm_key is missing; the policy knows {', '.join(sorted(self.statistics))}",
            )
        if key not in self.statistics:
            raise FieldError("unnorm_key", str(unknown("unnorm_key", key, self.statistics)))
        return key

    def fitted(self, observation: Observation) -> Observation:
        """Returns the same observation with its picture at the size that the policy sees.

        The action is the same; a server resizes so while the model is busy with others.

        Raises:
            FieldError: as `key_of`.
        """
        self.key_of(observation)
        return replace(observation, image=self.processor.fitted(observation.image))

    def act(
        self, observations: Sequence[Observation], *, method: str | None = None,
        seed: int | None = None, temperature: float = 0.0, compare: bool = False,
    ) -> list[Action]:  # fmt: skip
        """Returns an action for each observation, decoded as one ragged batch.

        Rows are split only where they can't share one, by the length of their actions.

        Args:
            method: one of `METHODS`; `auto` by default where there is a head.
            seed: of the draws; `None` takes torch's global state.
            temperature: 0 is greedy, as OpenVLA acts.
            compare: also decode plainly, and tell how far the action is from that.

        Raises:
            FieldError: an unnorm_key that is unknown or missing.
            SoonerError: an unknown method or one without its head; a comparison of draws.
        """
        check_number("temperature", temperature, hint="; 0 is greedy")
        if compare and temperature > 0:
            raise SoonerError(
                "compare asks how far an action is from the exact one, which sampling does not "
                "have; use temperature 0"
            )
        requested = self.check_method(method or self.default_method)
        groups: dict[int, list[int]] = {}
        for row, observation in enumerate(observations):
            groups.setdefault(self.statistics[self.key_of(observation)].dims, []).append(row)
        generator = None
        if seed is not None:
            generator = torch.Generator(device=self.adapter.device).manual_seed(seed)
        actions: dict[int, Action] = {}
        for dims, rows in groups.items():
            batch = [observations[row] for row in rows]
            name = self.pace[dims].pick(len(rows)) if requested == "auto" else requested
            decoded = self._decode(batch, name, generator, temperature)
            if compare:
                exact = self._decode(batch, "plain")
                decoded = [self._compared(*pair) for pair in zip(decoded, exact, strict=True)]
            actions.update(zip(rows, decoded, strict=True))
        return [actions[row] for row in range(len(observations))]

    def _decode(
        self, observations: Sequence[Observation], name: str,
        generator: torch.Generator | None = None, temperature: float = 0.0,
    ) -> list[Action]:  # fmt: skip
        """Returns actions of one length for observations that share their forwards."""
        began = time.perf_counter()
        statistics = [self.statistics[self.key_of(observation)] for observation in observations]
        inputs = self.processor(
            [observation.image for observation in observations],
            [observation.instruction for observation in observations],
        )
        params = SamplingParams(  # no id ends a row sooner
            max_new_tokens=self.horizon * statistics[0].dims,
            do_sample=temperature > 0,
            temperature=temperature or 1.0,
        )
        session = self._method(name, statistics[0]).session(
            self.adapter, inputs, params, generator=generator
        )
        outputs = run(session)
        seconds, stats = time.perf_counter() - began, session.stats
        self.pace[statistics[0].dims].add(name, len(observations), seconds)
        actions = []
        for row, (output, entry) in enumerate(zip(outputs, statistics, strict=True)):
            ids = np.array(output, dtype=np.int64).reshape(-1, entry.dims)
            deviation = None
            if stats.deviation is not None:
                local, widths = stats.deviation.of(row), entry.bin_width(self.tokens)
                deviation = Distance(local.accepted, local.mean, local.largest, widths)
            values = decode_actions(ids.reshape(1, -1), self.tokens, entry)[0]
            action = Action(
                values, ids, clipped=self.tokens.bins(torch.from_numpy(ids)).numpy() < 0,
                unnorm_key=entry.name, names=entry.names, method=name, mode=stats.mode,
                deviation=deviation, from_exact=None, stats=stats, seconds=seconds,
            )  # fmt: skip
            actions.append(action)
        return actions

    def _compared(self, action: Action, exact: Action) -> Action:
        """Returns the action with its distance from that of plain decoding."""
        # Bins as they are read: two ids with one centre, or no action at all, are the nearest.
        bins, reference = (
            np.clip(self.tokens.vocab_size - 1 - each.ids, 0, self.tokens.edges - 2)
            for each in (action, exact)
        )
        widths = self.statistics[action.unnorm_key].bin_width(self.tokens)
        away = np.abs(bins - reference)  # [horizon, dims]
        count = np.full(len(widths), len(away))
        return replace(action, from_exact=Distance(count, away.mean(0), away.max(0), widths))

    def _method(self, name: str, statistics: ActionStatistics) -> Method:
        """Returns the decoding method `plain`, `strict` or `relaxed` for actions of a data set.

        It is made once for each number of dimensions: what a method measures as it runs is of use
        to the next call.
        """
        if name == "plain":
            return Autoregressive()
        key = (name, statistics.dims)
        if key not in self._built:
            from ...methods import Eagle, Relaxed

            legal = tuple(range(self.tokens.first_id, self.tokens.vocab_size))
            # The prefill says the first token, and a whole accepted draft leaves the last one.
            depth = max(self.horizon * statistics.dims - 2, 1)
            nodes = GPU_NODES if self.adapter.device.type == "cuda" else CPU_NODES
            options: dict[str, Any] = {"nodes": nodes, "depth": depth, "legal": legal}
            tolerance = None
            if name == "relaxed":
                tolerance = Tolerance(self.tokens, statistics.dims, self.allowance)
            if tolerance is not None and not tolerance.is_exact:
                # The likeliest tokens are neighbours. What passes for one of them passes for the
                # next, so siblings would only take the place of deeper nodes.
                options |= {"nodes": depth, "top_k": 1}
            eagle = Eagle(self.head, **options | self.options)
            self._built[key] = eagle if tolerance is None else Relaxed(eagle, tolerance)
        return self._built[key]
