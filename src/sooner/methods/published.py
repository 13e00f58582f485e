"""Reads and writes the files of trained drafters of all kinds: configs, names, tensors."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from ..checks import check_whole
from ..errors import SoonerError, did_you_mean
from ..io import replacing, write_json
from ..models.checkpoint import BINARY, WEIGHTS, opened, tensor_files

CONFIG = "config.json"
CONFIG_KEY = "sooner"
"""Key of config.json under which sooner keeps what no published layout has a place for."""

DERIVED = re.compile(r"rotary_emb\.inv_freq$|^verifier_(norm|lm_head)\.weight$|^confidence_head\.")
"""What some files hold though it follows from the config, is the target's, or (DSpark's) chooses a
draft's length, which is measured here; it is not read."""

MATCHING = "; give the config that its weights came with"

Renames = Sequence[tuple[str, str]]
"""Pairs of what a published name begins with, and what the module has for it."""


def read_config(folder: Path) -> dict[str, Any]:
    """Returns a drafter's config.json.

    Raises:
        SoonerError: there is none, or it is no object.
    """
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SoonerError(
            f"draft head '{folder}' has no readable config.json; give a folder that `sooner train "
            "draft` wrote, or a published drafter"
        ) from error
    if not isinstance(config, dict):
        raise SoonerError(f"'{folder / CONFIG}' is no JSON object; give a published drafter")
    return config


def needed(raw: Mapping[str, Any], name: str, where: Any) -> Any:
    """Returns a value of a config.

    Raises:
        SoonerError: it is not there.
    """
    if raw.get(name) is None:
        raise SoonerError(f"'{where}' has no {name}{MATCHING}")
    return raw[name]


def size_of(raw: Mapping[str, Any], name: str, where: Any, usual: int | None = None) -> int:
    """Returns a size of a config; `usual` where it has none.

    Raises:
        SoonerError: it is not there, or no whole number of 1 or more.
    """
    value = usual if usual is not None and raw.get(name) is None else needed(raw, name, where)
    check_whole(f"{name} in '{where}'", value, hint=MATCHING)
    return int(value)


@dataclass
class Weights:
    """Holds the tensors of a drafter's folder by the names of its module.

    Attributes:
        folder: that they are of.
        kind: what such a drafter is called.
        tensors: by name.
        sources: their names in the files.
    """

    folder: Path
    kind: str
    tensors: dict[str, Tensor] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(
        cls, folder: Path, kind: str, renames: Renames = (), prefix: str = "",
        skipped: Sequence[str] = (),
    ) -> Weights:  # fmt: skip
        """Returns the tensors whose names begin with `prefix`; no others are read.

        Args:
            renames: the first that fits a name, without `prefix`, is applied.
            skipped: names, without `prefix`, that are passed over.

        Raises:
            SoonerError: none are there, or they can't be read.
        """
        made, by_file = cls(folder, kind), dict[Path, list[str]]()
        for source, path in tensor_files(folder).items():
            name = source.removeprefix(prefix)
            if source.startswith(prefix) and name not in skipped:
                by_file.setdefault(path, []).append(source)
        if not by_file:
            raise SoonerError(
                f"'{folder}' has no {WEIGHTS} and no {BINARY}; give the whole repository"
            )
        for path, sources in by_file.items():
            with opened(path) as (_, tensor):
                values = {source: tensor(source) for source in sources}
            for source, value in values.items():
                name = re.sub(r"^(model|draft_model|logit_head)\.", "", source.removeprefix(prefix))
                name = renamed(name, renames)
                if not DERIVED.search(name):
                    made.tensors[name], made.sources[name] = value, source
        return made

    def fill(self, module: nn.Module) -> None:
        """Put the tensors into a module.

        Raises:
            SoonerError: names the first that is unknown, missing or of another shape.
        """
        expected = module.state_dict()
        for name, value in self.tensors.items():
            source = self.sources.get(name, name)
            if name not in expected:
                raise SoonerError(
                    f"'{self.folder}' has a tensor '{source}' that is no part of its {self.kind}"
                    f"{did_you_mean(name, expected)}; it would change what the head computes"
                )
            if value.shape != expected[name].shape:
                raise SoonerError(
                    f"'{source}' in '{self.folder}' is {list(value.shape)}, by its config.json it "
                    f"must be {list(expected[name].shape)}; give files that were published together"
                )
        if lacking := [name for name in expected if name not in self.tensors]:
            more = f" and {len(lacking) - 3} more" if len(lacking) > 3 else ""
            raise SoonerError(
                f"'{self.folder}' lacks {', '.join(lacking[:3])}{more} of its {self.kind}; give "
                "the whole repository"
            )
        module.load_state_dict(self.tensors)

    def take_vocabulary(self, drafted: int, vocab: int | None) -> Tensor | None:
        """Take out which of the target's tokens are drafted, `target = draft + d2t[draft]`, and
        return their ids, `[drafted]`; `None` is all of the target's.

        Args:
            drafted: how many there are.
            vocab: size of the target's vocabulary, where the config tells it.

        Raises:
            SoonerError: `d2t` or `t2d` don't fit the sizes, or each other.
        """
        offsets, mask = self.tensors.pop("d2t", None), self.tensors.pop("t2d", None)
        if offsets is None:
            if vocab is not None and drafted != vocab:
                raise SoonerError(
                    f"{self.kind}: it drafts {drafted} of {vocab} tokens, but has no 'd2t' that "
                    "says which; give the whole repository"
                )
            return None
        if len(offsets) != drafted:
            raise SoonerError(
                f"{self.kind}: 'd2t' has {len(offsets)} entries, draft_vocab_size is {drafted}; "
                "give files that were published together"
            )
        ids = torch.arange(drafted) + offsets.long()
        if int(ids.min()) < 0 or (vocab is not None and int(ids.max()) >= vocab):
            raise SoonerError(
                f"{self.kind}: 'd2t' leads to token {int(ids.max())}, vocab_size is {vocab}; "
                "offsets are added to the draft's own ids"
            )
        if len(ids.unique()) != len(ids):
            raise SoonerError(
                f"{self.kind}: two draft ids have one target id in 'd2t', whose entries must be "
                "offsets"
            )
        if mask is not None and not torch.equal(mask.bool().nonzero()[:, 0], ids.sort()[0]):
            raise SoonerError(
                f"{self.kind}: 't2d' keeps other tokens than 'd2t' leads to; give files that were "
                "published together"
            )
        return ids


def renamed(name: str, renames: Renames) -> str:
    """Returns a name whose beginning is replaced by the first pair that fits."""
    for old, new in renames:
        if name.startswith(old):
            return new + name.removeprefix(old)
    return name


def write(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Write `config.json` and `model.safetensors`, each whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / WEIGHTS) as part:
        state = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
        save_file(state, part, metadata={"format": "pt"})
    write_json(config, folder / CONFIG)
