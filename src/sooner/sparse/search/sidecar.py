"""What a search has found so far, on disk, so that an interrupted one goes on."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...errors import SoonerError
from ...io import replacing
from .score import Survey, Tally, Trial


class Sidecar:
    """A folder beside the pattern file that has one small file for each finished layer and pass.

    Args:
        path: the folder; `None` keeps nothing.
        key: what the search is of: model, samples, settings. What another search left is removed.

    Raises:
        SoonerError: the folder can't be written.
    """

    def __init__(self, path: Path | None, key: Mapping[str, Any]) -> None:
        self.path = path
        if path is None:
            return
        digest = hashlib.sha256(json.dumps(key, sort_keys=True, default=str).encode()).hexdigest()
        mark = path / "search.txt"
        try:
            if path.is_dir() and (not mark.is_file() or mark.read_text() != digest):
                shutil.rmtree(path)
            path.mkdir(parents=True, exist_ok=True)
            mark.write_text(digest)
        except OSError as error:
            raise SoonerError(f"'{path}' can't be written: {error.strerror}") from error

    @property
    def count(self) -> int:
        """Files that are there."""
        return 0 if self.path is None else len(list(self.path.glob("*.pt")))

    def survey(self, sample: int, layer: int) -> Survey | None:
        """Returns what was kept of a layer's candidates."""
        data = self._get(f"survey-{sample}-{layer}")
        if data is None:
            return None
        names = [name for name in data if name not in ("norm", "tokens", "pairs")]
        regions = {name: Tally(*data[name].unbind()) for name in names}
        return Survey(regions, data["norm"], float(data["tokens"]), float(data["pairs"]))

    def trial(self, sample: int, layer: int, kinds: int) -> list[Trial] | None:
        """Returns what was kept of a layer's finished patterns."""
        data = self._get(f"trial-{sample}-{layer}")
        if data is None or len(data["tallies"]) != kinds:
            return None
        figures = data["norm"], float(data["tokens"]), float(data["pairs"])
        return [Trial(Tally(*tally.unbind()), *figures) for tally in data["tallies"]]

    def keep_survey(self, sample: int, layer: int, survey: Survey) -> None:
        regions = {name: torch.stack(list(vars(t).values())) for name, t in survey.regions.items()}
        self._put(f"survey-{sample}-{layer}", {**regions, **_totals(survey)})

    def keep_trial(self, sample: int, layer: int, trials: list[Trial]) -> None:
        tallies = torch.stack([torch.stack(list(vars(t.tally).values())) for t in trials])
        self._put(f"trial-{sample}-{layer}", {"tallies": tallies, **_totals(trials[0])})

    def remove(self) -> None:
        """The search is done."""
        if self.path is not None:
            shutil.rmtree(self.path, ignore_errors=True)

    def _get(self, name: str) -> dict[str, Tensor] | None:
        path = None if self.path is None else self.path / f"{name}.pt"
        if path is None or not path.is_file():
            return None
        try:
            return torch.load(path, weights_only=True)
        except (OSError, RuntimeError, EOFError):  # written halfway when the power went
            return None

    def _put(self, name: str, data: dict[str, Tensor]) -> None:
        if self.path is None:
            return
        with replacing(self.path / f"{name}.pt") as part:
            torch.save(data, part)


def _totals(result: Survey | Trial) -> dict[str, Tensor]:
    tokens, pairs = (torch.tensor(v, dtype=torch.double) for v in (result.tokens, result.pairs))
    return {"norm": result.norm, "tokens": tokens, "pairs": pairs}
