"""How much memory the engine of a server has for keys and values, in pages, and what fits there."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from ..engine.memory import manager
from ..engine.memory.free_memory import ON_CPUS
from ..engine.memory.free_memory import free_bytes as _free
from ..engine.memory.free_memory import gpus_of as _gpus
from ..errors import SoonerError
from ..methods import Method
from ..models import adapt
from ..tasks.loading import ModelPair
from ..tasks.prompting import max_positions
from .settings import ChatSettings

logger = logging.getLogger("sooner.serve")

UNLIMITED = 1 << 20
"""Tokens that a model without a limit to its positions is given."""
CACHE_FACTOR = 4
"""Pages at most, as a multiple of what all rows can hold at once; what is more keeps prefixes."""


@dataclass(frozen=True)
class KvMemory:
    """Holds the pages of a server.

    Attributes:
        pages: how many, of target and draft.
        page_bytes: of each.
        max_model_len: tokens that prompt and answer of a request may have together.
        share: tokens of a row if all rows are as long. Answers that ask for no limit get no more:
            caches that do not lie in pages, as a draft's, are made for the longest that may come.
    """

    pages: int
    page_bytes: int
    max_model_len: int
    share: int

    @property
    def slots(self) -> int:
        """Tokens of a row that has every page."""
        return self.pages * manager.PAGE


def kv_memory(pair: ModelPair, method: Method, settings: ChatSettings) -> KvMemory:
    """Returns what the settings say; without them what is free on a GPU, or what all rows may need.

    Args:
        pair: the models, loaded.
        method: of the engine.

    Raises:
        SoonerError: there is not enough for one request, or for one of `max_model_len` tokens.
    """
    known = _positions(pair)
    if settings.max_model_len is not None and settings.max_model_len > known:
        raise SoonerError(
            f"max_model_len is {settings.max_model_len}, and the models know {known} positions; "
            "give that or less"
        )
    longest = settings.max_model_len or known
    model, page, block = pair.target.model, manager.PAGE, method.largest_block()
    page_bytes = manager.page_bytes(adapt(model), method)
    each = -(-(longest + block) // page)  # of a row that is as long as it may be
    if settings.kv_cache_memory_bytes is not None:
        pages = settings.kv_cache_memory_bytes // page_bytes
    elif devices := _gpus(model):
        free = sum(_free(device, settings.gpu_memory_utilization) for device in devices)
        pages = min(max(free, 0) // page_bytes, CACHE_FACTOR * settings.max_rows * each)
    else:
        pages = min(ON_CPUS // page_bytes, settings.max_rows * each)
    fits = pages * page - block
    if fits < 2 or (settings.max_model_len or 0) > fits:
        raise SoonerError(
            f"the memory for keys and values is {pages} pages of {page} tokens ({page_bytes} bytes "
            f"each), in which {max(fits, 0)} tokens of a request fit, and {max(longest, 2)} are "
            "wanted; give more (--kv-cache-memory-bytes, --gpu-memory-utilization), or a lower "
            "--max-model-len"
        )
    if fits < longest:
        logger.warning(
            "requests have %d tokens at most, not the model's %d: there are %d pages of %d tokens "
            "(%.2f GiB); --kv-cache-memory-bytes gives more",
            fits, longest, pages, page, pages * page_bytes / 2**30,
        )  # fmt: skip
    share = max(pages * page // settings.max_rows - block, page)
    return KvMemory(pages, page_bytes, min(longest, fits), min(longest, fits, share))


def _positions(pair: ModelPair) -> int:
    models = [pair.target.model, *([] if pair.draft is None else [pair.draft.model])]
    return min(max_positions(model) or UNLIMITED for model in models)
