"""The action for one observation, and its distance from the action of exact decoding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from ...engine.stats.run import Stats


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
    def between(cls, bins: np.ndarray, widths: np.ndarray) -> Distance:
        """Returns the distance of two whole actions.

        Args:
            bins: their absolute distance, `[horizon, dims]`.
            widths: of a bin, `[dims]`, in the unit of the action.
        """
        return cls(np.full(bins.shape[1], len(bins)), bins.mean(0), bins.max(0), widths)

    @classmethod
    def pooled(cls, parts: Sequence[Distance]) -> Distance:
        """Returns the distance of several actions of one robot: means of all numbers, largest of
        all.
        """
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
            "action": self.values.tolist(),
            "ids": self.ids.tolist(),
            "clipped": bool(self.clipped.any()),
            "unnorm_key": self.unnorm_key,
            "names": None if self.names is None else list(self.names),
            "method": self.method,
            "mode": self.mode,
            "seconds": self.seconds,
            "rows": self.stats.rows,
            "forwards": self.stats.nfe,
            "acceptance_length": self.stats.mean_acceptance_length,
        }
        for name in ("deviation", "from_exact"):
            distance = getattr(self, name)
            data[name] = None if distance is None else distance.as_dict()
        return data
