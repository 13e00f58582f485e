"""Hash of a run's settings, by which its results are recognised; no torch."""

from __future__ import annotations

from pathlib import Path

from ... import miniatures
from ...errors import SoonerError
from ..identity import RECORDS, fingerprint
from .settings import ParseSettings

MINIATURE = "document"
DEMO = "miniature"
"""Name of the bundled miniature on the command line."""


def parser_name(model: str | None) -> str:
    """Returns a model's name; the bundled miniature's folder for `None` or `"miniature"`.

    Raises:
        SoonerError: it is not in this installation; or a folder that does not exist.
    """
    if model is not None and model != DEMO:
        if model.startswith(("/", ".", "~")) and not Path(model).is_dir():
            raise SoonerError(f"model folder '{model}' does not exist; check the path")
        return model
    if MINIATURE in miniatures.names():
        target = miniatures.find(MINIATURE).target
        if (target / "config.json").is_file():
            return str(target)
    raise SoonerError(
        f"the '{MINIATURE}' miniature is not in this installation; give a model with --model"
    )


def settings_hash(
    settings: ParseSettings, model: str, dtype: str, drafter: str, resolution: object
) -> str:
    """Hash of all that decides a page's result besides its document.

    Args:
        model: its name, from `parser_name`.
        drafter: from `drafter_hash`.
    """
    return settings.digest(fingerprint(model), dtype, drafter, repr(resolution), RECORDS)
