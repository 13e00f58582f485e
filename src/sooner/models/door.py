"""A family's own forward, stopped at the door of its decoder."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Mapping
from typing import Any

from torch import nn

from ..errors import UnsupportedError


class _DoorReachedError(Exception):
    """Carries the decoder's arguments out of the family's forward."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        super().__init__("the prompt reached the decoder")
        self.arguments = arguments


def decoder_arguments(body: nn.Module, decoder: nn.Module, inputs: Mapping[str, Any]) -> dict:
    """The keyword arguments that `body(**inputs)` would call `decoder` with.

    The hook answers only to this thread and is removed before returning, so another thread may
    decode with the same model meanwhile.
    """
    owner = threading.get_ident()

    def stop(module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
        if threading.get_ident() == owner:
            names = inspect.signature(module.forward).parameters  # for what comes without a name
            raise _DoorReachedError({**dict(zip(names, args, strict=False)), **kwargs})

    handle = decoder.register_forward_pre_hook(stop, with_kwargs=True)
    try:
        body(**inputs)
    except _DoorReachedError as door:
        return door.arguments
    finally:
        handle.remove()
    raise UnsupportedError(
        f"{type(body).__name__} never called its decoder with the inputs {sorted(inputs)}"
    )
