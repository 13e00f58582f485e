"""Actions of a robot and their token ids: bins, and the statistics that scale them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import SoonerError, unknown
from .config import OpenVLAConfig


@dataclass(frozen=True)
class ActionTokens:
    """Converts between normalised actions in [-1, 1], bins and token ids.

    A *bin* is `0 .. edges - 1`; ids fall as values rise: bin `b` has id `vocab_size - 1 - b`.

    Args:
        vocab_size: ids without padding (`OpenVLAConfig.action_vocab_size`).
        edges: of the uniform grid; neighbouring ones have a centre between them.
    """

    vocab_size: int
    edges: int = 256

    @classmethod
    def of(cls, config: OpenVLAConfig) -> ActionTokens:
        return cls(config.action_vocab_size, config.n_action_bins)

    @cached_property
    def centers(self) -> np.ndarray:
        """Returns the centres of the bins, `[edges - 1]`, float64."""
        grid = np.linspace(-1, 1, self.edges)
        return (grid[:-1] + grid[1:]) / 2

    @property
    def width(self) -> float:
        """Returns the distance of two neighbouring centres."""
        return 2 / (self.edges - 1)

    @property
    def first_id(self) -> int:
        """Smallest id that is an action."""
        return self.vocab_size - self.edges

    def encode(self, actions: np.ndarray) -> np.ndarray:
        """Encodes normalised values of any shape, clipped to [-1, 1], as ids of that shape."""
        grid = np.linspace(-1, 1, self.edges)
        return self.vocab_size - np.digitize(np.clip(actions, -1, 1), grid)

    def decode(self, ids: np.ndarray) -> np.ndarray:
        """Ids of any shape to bin centres; an id that is no action to the nearest end."""
        return self.centers[np.clip(self.vocab_size - np.asarray(ids) - 1, 0, self.edges - 2)]

    def bins(self, ids: Tensor) -> Tensor:
        """Returns bins of ids, of any shape; -1 for an id that is no action."""
        bins = self.vocab_size - 1 - ids
        inside = (bins >= 0) & (bins < self.edges)
        return torch.where(inside, bins, -1)


FILE = "dataset_statistics.json"

WAY_OUT = "take the dataset_statistics.json that the checkpoint was trained with"


@dataclass(frozen=True, eq=False)
class ActionStatistics:
    """Holds the 1st and 99th percentile of each dimension of an action, which became -1 and 1.

    Kim et al. 2024 (OpenVLA), section 3.2. Units are the data set's, mostly metres and radians.

    Args:
        name: of the data set, the `unnorm_key` of OpenVLA's code.
        q01, q99: `[dims]`, float64.
        mask: `[dims]`, bool; a dimension without it was never normalised (most grippers).
        names: of the dimensions, for reports.

    Raises:
        SoonerError: lengths that differ, or values that are not finite; says which.
    """

    name: str
    q01: np.ndarray
    q99: np.ndarray
    mask: np.ndarray
    names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        for name in ("q01", "q99"):
            object.__setattr__(self, name, _numbers(self.name, name, getattr(self, name)))
        object.__setattr__(self, "mask", _flags(self.name, self.mask))
        lengths = {"q01": len(self.q01), "q99": len(self.q99), "mask": len(self.mask)}
        if self.names is not None:
            object.__setattr__(self, "names", tuple(str(name) for name in self.names))
            lengths["names"] = len(self.names)
        if len({*lengths.values()}) > 1:
            text = ", ".join(f"{count} {name}" for name, count in lengths.items())
            raise SoonerError(f"statistics of '{self.name}' have {text}; {WAY_OUT}")

    @classmethod
    def read(cls, name: str, data: Mapping[str, Any]) -> ActionStatistics:
        """From what a checkpoint says of one data set.

        Args:
            data: `{"action": {"q01": [...], "q99": [...], "mask": [...]}}`; without a mask every
                dimension is normalised. `names` is ours.

        Raises:
            SoonerError: no action, or one without q01 or q99.
        """
        action = data.get("action") if isinstance(data, Mapping) else None
        if not isinstance(action, Mapping):
            raise SoonerError(f"statistics of '{name}' say nothing of an action; {WAY_OUT}")
        for key in ("q01", "q99"):
            if action.get(key) is None:
                raise SoonerError(f"statistics of '{name}' have no {key} of the action; {WAY_OUT}")
        mask = action.get("mask")
        mask = np.ones(np.shape(action["q01"]), dtype=bool) if mask is None else mask
        return cls(name, action["q01"], action["q99"], mask, action.get("names"))

    @classmethod
    def choose(cls, stats: Mapping[str, Any] | None, key: str | None = None) -> ActionStatistics:
        """Returns the statistics of one data set.

        Args:
            stats: `config.norm_stats`, or the content of a `dataset_statistics.json`.
            key: name of the data set, `unnorm_key`; a single one needs none.

        Raises:
            SoonerError: no statistics, an unknown key, or none where there are several.
        """
        if not stats:
            raise SoonerError(f"the checkpoint has no statistics of its actions; {WAY_OUT}")
        if key is None and len(stats) > 1:
            raise SoonerError(
                f"the policy knows {len(stats)} data sets; give an unnorm_key of "
                f"{', '.join(sorted(stats))}"
            )
        key = next(iter(stats)) if key is None else key
        if key not in stats:
            raise unknown("unnorm_key", key, stats)
        return cls.read(key, stats[key])

    @property
    def dims(self) -> int:
        return len(self.q01)

    def unnormalise(self, normed: np.ndarray) -> np.ndarray:
        """`[..., dims]` in [-1, 1] to physical units; dimensions without mask stay as they are."""
        normed = self._fitting(normed)
        scaled = 0.5 * (normed + 1) * (self.q99 - self.q01) + self.q01
        return np.where(self.mask, scaled, normed)

    def bin_width(self, tokens: ActionTokens) -> np.ndarray:
        """`[dims]`: how far one bin is in physical units; without mask in normalised ones."""
        return tokens.width * np.where(self.mask, 0.5 * (self.q99 - self.q01), 1)

    def _fitting(self, values: np.ndarray) -> np.ndarray:
        values = np.asarray(values, dtype=np.float64)
        if values.ndim == 0 or values.shape[-1] != self.dims:
            raise SoonerError(
                f"actions of shape {list(values.shape)} do not fit '{self.name}', which has "
                f"{self.dims} dimensions; choose the unnorm_key of this robot"
            )
        return values


def decode_actions(
    ids: np.ndarray, tokens: ActionTokens, statistics: ActionStatistics
) -> np.ndarray:
    """Returns generated ids to actions in physical units.

    Args:
        ids: `[rows, horizon * dims]`, one action behind the other.

    Returns:
        `[rows, horizon, dims]`, float64.

    Raises:
        SoonerError: the ids are no whole number of actions.
    """
    ids, dims = np.asarray(ids), statistics.dims
    if ids.ndim != 2 or ids.shape[1] == 0 or ids.shape[1] % dims:
        raise SoonerError(
            f"ids of shape {list(ids.shape)} are no whole actions of {dims} dimensions; generate "
            "[rows, horizon * dims]"
        )
    return statistics.unnormalise(tokens.decode(ids).reshape(len(ids), -1, dims))


def _numbers(name: str, field: str, values: Any) -> np.ndarray:
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        numbers = np.array(np.nan)
    if numbers.ndim != 1 or not len(numbers) or not np.isfinite(numbers).all():
        raise SoonerError(
            f"{field} in the statistics of '{name}' is no list of finite numbers; {WAY_OUT}"
        )
    return numbers


def _flags(name: str, values: Any) -> np.ndarray:
    flags = np.asarray(values)
    if flags.ndim != 1 or flags.dtype != bool:
        raise SoonerError(
            f"mask in the statistics of '{name}' is no list of true and false; {WAY_OUT}"
        )
    return flags
