"""What every bench's figures have in common."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from ..errors import SoonerError


def check_matplotlib() -> None:
    """Refuse to go on without it, before minutes are spent.

    Raises:
        SoonerError: matplotlib is not installed.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise SoonerError(
            "figures need matplotlib, which is not installed; pip install 'sooner[bench]'"
        )


def save(figure: Any, stem: Path) -> list[str]:
    """Write `stem`.png and `stem`.svg; returns their names."""
    import matplotlib

    paths = [stem.with_name(f"{stem.name}.{suffix}") for suffix in ("png", "svg")]
    with matplotlib.rc_context({"svg.hashsalt": "sooner"}):  # the same data, the same file
        for path in paths:
            options: dict[str, Any] = {}
            if path.suffix == ".svg":
                options = {"metadata": {"Date": None}}
            figure.savefig(path, dpi=150, **options)
    return [path.name for path in paths]
