"""JSON files beside a policy's weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ...errors import SoonerError


def read_object(file: Path) -> dict[str, Any] | None:
    """The JSON object in a file; `None` if there is no such file.

    Raises:
        SoonerError: it holds something else.
    """
    if not file.is_file():
        return None
    try:
        told = json.loads(file.read_text())
    except ValueError as error:
        raise SoonerError(f"'{file}' is not JSON ({error}); fetch it again") from error
    if not isinstance(told, dict):
        raise SoonerError(f"'{file}' holds no object; fetch it again")
    return told
