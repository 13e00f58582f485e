"""A client of the `/act` convention in the shape of a LeRobot policy; needs numpy alone."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from ...errors import SoonerError

PICTURES, PICTURE, TASK = "observation.images.", "observation.image", "task"


class RemotePolicy:
    """A policy that runs in a server.

    `select_action` takes what a LeRobot policy takes, `{"observation.images.NAME": ..., "task":
    "..."}`, and returns one action; a server that says several at once is asked again when all of
    them were returned. `act` asks for one picture and returns the whole answer.

    Args:
        url: of the server, such as `http://127.0.0.1:8000`.
        token: if it wants one.
        unnorm_key: data set of this robot.
        deadline_ms: for each answer.
        timeout: seconds after which a server that does not answer is given up.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        *,
        token: str | None = None,
        unnorm_key: str | None = None,
        deadline_ms: float | None = None,
        timeout: float = 60.0,
    ) -> None:
        self.url = url.rstrip("/")
        self.token, self.unnorm_key = token, unnorm_key
        self.deadline_ms, self.timeout = deadline_ms, timeout
        self._ahead: deque[np.ndarray] = deque()

    def reset(self) -> None:
        """Start an episode: actions queued from the last answer are dropped."""
        self._ahead.clear()

    def select_action(self, observation: Mapping[str, Any]) -> np.ndarray:
        """Returns the next action, `[dims]`.

        Args:
            observation: one picture under `observation.images.NAME` or `observation.image`, uint8
                `[height, width, 3]` or, as LeRobot's data sets have it, float `[3, height, width]`
                from 0 to 1, a batch of one in front or not; and `task`, the instruction.

        Raises:
            SoonerError: as `act`; more than one picture, or none, or no task.
        """
        if not self._ahead:
            task = observation.get(TASK)
            task = task[0] if isinstance(task, list | tuple) and len(task) == 1 else task
            if not isinstance(task, str):
                raise SoonerError(f"observation has {task!r} as its task; give one text")
            self._ahead.extend(self.act(_picture(observation), task))
        return self._ahead.popleft()

    def act(self, image: np.ndarray, instruction: str) -> np.ndarray:
        """Returns actions, `[horizon, dims]`.

        Raises:
            SoonerError: the server refuses, or is not there; says what it said.
        """
        request: dict[str, Any] = {"image": as_json_numpy(image), "instruction": instruction}
        if self.unnorm_key is not None:
            request["unnorm_key"] = self.unnorm_key
        if self.deadline_ms is not None:
            request["deadline_ms"] = self.deadline_ms
        answer = self._ask(json.dumps(request).encode())
        arrays = answer if isinstance(answer, list) else [answer]
        return np.stack(
            [
                np.frombuffer(
                    base64.b64decode(array["__numpy__"]), np.dtype(array["dtype"])
                ).reshape(array["shape"])
                for array in arrays
            ]
        )

    def _ask(self, body: bytes) -> Any:
        headers = {"Content-Type": "application/json"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        request = urllib.request.Request(f"{self.url}/act", body, headers)
        try:
            with urllib.request.urlopen(request, timeout=self.timeout) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            reason = error.reason
            with suppress(ValueError, KeyError, TypeError):
                reason = json.load(error)["error"]["message"]
            raise SoonerError(f"the server refused ({error.code}): {reason}") from error
        except OSError as error:
            raise SoonerError(f"no server answers at {self.url}: {error}") from error


def _picture(observation: Mapping[str, Any]) -> np.ndarray:
    names = [name for name in observation if name.startswith(PICTURES) or name == PICTURE]
    if len(names) != 1:
        raise SoonerError(
            f"observation has {len(names)} pictures ({', '.join(sorted(names))}); the policy sees "
            f"one, under {PICTURES}NAME"
        )
    image = np.asarray(observation[names[0]])
    if image.ndim == 4 and image.shape[0] == 1:
        image = image[0]
    if image.ndim == 3 and image.shape[0] == 3 and image.shape[2] != 3:
        image = image.transpose(1, 2, 0)
    if image.dtype.kind == "f":
        image = (image * 255).round().clip(0, 255).astype(np.uint8)
    return np.ascontiguousarray(image)


def as_json_numpy(array: np.ndarray) -> dict[str, Any]:
    """Returns what the `json_numpy` package writes for an array."""
    data = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
    return {"__numpy__": data, "dtype": array.dtype.str, "shape": list(array.shape)}
