"""Loading of optional packages, without their chatter."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ...errors import SoonerError


def needed(package: str, what: str) -> Any:
    """An optional package.

    Raises:
        SoonerError: it, or something that it needs, is not installed.
    """
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise SoonerError(
            f"{what} needs {package.replace('_', '-')} ({error}); install it with: "
            "pip install 'sooner[docs]'"
        ) from None


@contextmanager
def quiet() -> Iterator[None]:
    """No messages below warnings: these packages set their own level while they load."""
    before = logging.root.manager.disable
    logging.disable(max(before, logging.INFO))
    try:
        yield
    finally:
        logging.disable(before)
