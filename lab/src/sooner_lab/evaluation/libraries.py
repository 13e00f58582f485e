"""Libraries that metrics need, which not every user of the package has."""

from __future__ import annotations

import importlib
import importlib.util
from importlib import metadata
from typing import Any

from sooner.errors import SoonerError

PACKAGES = ("rapidfuzz", "apted", "sacrebleu", "nltk", "scipy", "lxml", "fuzzysearch")
"""What the extra `eval` installs."""


def needed(module: str, what: str) -> Any:
    """An optional module.

    Args:
        what: the metric that needs it, for the error.

    Raises:
        SoonerError: it, or something that it needs, is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise SoonerError(
            f"{what} needs {module.split('.')[0]} ({error}); install it with: "
            "pip install 'sooner-lab[eval]'"
        ) from None


def check() -> None:
    """Refuse to begin what could not be scored at its end.

    Raises:
        SoonerError: a library of the extra `eval` is not installed.
    """
    for name in PACKAGES:
        if importlib.util.find_spec(name) is None:
            raise SoonerError(
                f"evaluation needs {name}, which is not installed; install it with: "
                "pip install 'sooner-lab[eval]'"
            )


def versions() -> dict[str, str]:
    """Versions of what figures come from; libraries that are missing are left out."""
    result = {}
    for name in ("sooner", *PACKAGES):
        try:
            result[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return result
