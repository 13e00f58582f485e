"""Messages between the server and a process that decodes: JSON, in one piece each."""

from __future__ import annotations

import dataclasses
import json
from multiprocessing.connection import Connection
from typing import Any

from .limits import MediaLimits


def send(connection: Connection, message: dict[str, Any]) -> None:
    """Write one message."""
    connection.send_bytes(json.dumps(message).encode())


def limit_fields(limits: MediaLimits) -> dict[str, Any]:
    """Returns the limits as JSON has them; `MediaLimits(**told)` is the way back."""
    return dataclasses.asdict(limits)
