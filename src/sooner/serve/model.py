"""The model that is served: checked, with its method and the memory for keys and values, as the
HTTP side knows it; and `sooner serve MODEL`, which runs the engine's thread, processes that decode
media, and uvicorn."""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from ..engine.memory import ON_CPUS, free_bytes, gpus_of, manager
from ..engine.scheduler import Engine, TokenPace
from ..errors import SoonerError
from ..methods import HSD, Method, ParallelVLM
from ..methods.aligned.alignment import Experience
from ..models import CANVASES, adapt
from ..models.openvla.adapter import OpenVLA
from ..parity import end_ids
from ..tasks.loading import Loaded, ModelPair
from ..tasks.parse.families import family_in_folder
from ..tasks.prompting import max_positions
from ..tasks.registry import build_method
from ..tasks.settings import CaptionSettings
from .app import DrainingServer, create_app
from .engine_thread import EngineThread
from .media.reader import MediaReader
from .openai.app import OpenAIHandler
from .openai.planning import ServedModel
from .openai.prompts import ChatPrompts
from .settings import ChatSettings

logger = logging.getLogger("sooner.serve")

UNLIMITED = 1 << 20
"""Tokens that a model without a limit to its positions is given."""
CACHE_FACTOR = 4
"""Pages at most, as a multiple of what all rows can hold at once; what is more keeps prefixes."""
TRIAL_TOKENS = 8
"""New tokens of the request that each new engine is tried with."""


def check_servable(pair: ModelPair) -> None:
    """Refuse models that answer no questions, adapters that are not merged, and drafts that see
    other pixels than their target.

    Raises:
        SoonerError: says which command is theirs, or what to do.
    """
    target, draft = pair.target, pair.draft
    kind = str(target.model.config.model_type)
    if kind in OpenVLA.model_types:
        raise SoonerError(f"'{target.name}' is a robot policy; use sooner act serve")
    if kind in CANVASES and getattr(target.processor, "chat_template", None) is None:
        raise SoonerError(f"'{target.name}' draws and does not chat; use sooner imagine")
    if getattr(target.model, "_hf_peft_config_loaded", False):
        raise SoonerError(
            f"'{target.name}' has an adapter beside its weights; merge it (PEFT's "
            "merge_and_unload), save the model and serve that folder"
        )
    if draft is None or draft.is_text or target.is_text:
        return
    for part in ("image_processor", "video_processor"):
        ours, draft_data = (_config_dict(loaded, part) for loaded in (target, draft))
        if ours != draft_data:
            raise SoonerError(
                f"draft '{draft.name}' processes pixels otherwise than '{target.name}' ({part}); "
                "a server makes them once, so name a draft with the same processor"
            )


def _config_dict(loaded: Loaded, part: str) -> dict[str, Any]:
    made = getattr(loaded.processor, part, None)
    data: dict[str, Any] = {} if made is None else dict(made.to_dict())
    return {name: value for name, value in data.items() if not name.startswith("_")}


def serving_method(pair: ModelPair, settings: ChatSettings) -> Method:
    """Returns how drafts are made, as the settings say; else the best that these models allow.

    Raises:
        SoonerError: an unknown method, one that lacks its draft, or one that serves no requests
            that come and go.
    """
    if settings.method == "hsd":
        return HSD(drafts=[[]], nodes=settings.num_draft_tokens, experience=Experience())
    name, placement = settings.method, "auto"
    if name is None and settings.head is None and pair.draft is not None:
        name = "speculative"  # `parallel` takes one request at a time
    if name == "parallel" and pair.draft is not None:
        placement = draft_placement(pair.draft.device)
    drafts, head = settings.num_draft_tokens, settings.head
    decoding = CaptionSettings(method=name, num_draft_tokens=drafts, head=head, placement=placement)
    method = build_method(decoding, pair)
    if isinstance(method, ParallelVLM):
        method = replace(method, draws_as_target=True)
    return method


def draft_placement(device: torch.device) -> str:
    """Returns where a draft beside the target works in a server, by its device.

    On CPUs it is a process that is spawned: one that was forked would hold whatever locks and
    sockets the server's other threads had at that moment.
    """
    return "spawn" if device.type == "cpu" else "auto"


def served_model(
    pair: ModelPair, model_name: str, settings: ChatSettings, method: Method, memory: KvMemory
) -> ServedModel:
    """Returns the model as answers know it, with the processes that decode media; `model_name` is
    as on the command line."""
    model, name = pair.target.model, settings.served_model_name or model_name
    limit = model.generation_config.max_new_tokens or memory.share
    stops = frozenset(end_ids(model)) or {pair.target.tokenizer.eos_token_id} - {None}
    media = MediaReader(settings, family_in_folder(pair.target.name).size)
    return ServedModel(
        names=tuple(dict.fromkeys((name, model_name))),
        tokenizer=pair.target.tokenizer,
        prepare=ChatPrompts(name, pair.target, media, memory.max_model_len),
        max_model_len=memory.max_model_len,
        vocab_size=int(model.config.get_text_config(decoder=True).vocab_size),
        stop_token_ids=frozenset(stops),
        default_max_tokens=min(limit, memory.share),
        method=method,
        slots=memory.slots,
        created=int(time.time()),
    )


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
    loaded = [pair.target] if pair.draft is None else [pair.target, pair.draft]
    known = min(max_positions(each.model) or UNLIMITED for each in loaded)
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
    elif devices := gpus_of(model):
        free = sum(free_bytes(device, settings.gpu_memory_utilization) for device in devices)
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


class ChatServer:
    """Holds one model behind OpenAI's API.

    Args:
        pair: the models, loaded.
        model_name: the model as it was named, one of the names that clients may use.
        settings: how.
        log_level: uvicorn's.

    Attributes:
        app: answers requests, once it is started.

    Raises:
        SoonerError: the method can't be run with these models.
    """

    def __init__(
        self, pair: ModelPair, model_name: str, settings: ChatSettings, log_level: str = "warning"
    ) -> None:
        method = serving_method(pair, settings)
        if not method.joins(method):  # it decodes only rows that were admitted together
            settings = replace(settings, max_rows=1)
        self.settings = settings
        self._standing = getattr(method, "standing", None)
        memory = kv_memory(pair, method, settings)
        served = served_model(pair, model_name, settings, method, memory)
        self.prompts: Any = served.prepare
        self._trial = trial_inputs(pair.target)
        build = partial(build_engine, pair.target.model, method, settings, memory.pages)
        self.thread = EngineThread(
            lambda: try_engine(build(), self._trial),
            max_requests=settings.max_rows + settings.max_queue,
            warm_up=self._warm_up,
        )
        self.handler = OpenAIHandler(served, self.thread, settings)
        self.app = create_app(self.handler)
        self.server = DrainingServer(self.app, settings, log_level)

    def run(self, on_ready: Callable[[str], Any] = lambda url: None) -> None:
        """Serve until the process is told to stop (SIGINT, SIGTERM); then answer what is under way.

        Args:
            on_ready: told the address once requests are taken.

        Raises:
            SoonerError: the address is taken, or the engine was lost.
        """
        try:
            self.server.listen(on_ready)
        finally:
            self.close()

    def close(self) -> None:
        """End processes beside the engine's thread, which `handler.close` ends."""
        self.prompts.close()
        if self._standing is not None:
            self._standing.close()  # a draft's process
        gc.unfreeze()  # see `_warm_up`; libraries complain at the end about what is left

    def _warm_up(self, engine: Any) -> None:
        threading.Thread(target=self.prompts.media.processes.start, daemon=True).start()
        if engine.launches_graphs:
            from ..engine.graphs.steps import warm_graphs  # on GPUs

            warm_graphs(engine, self._trial)
        # What is there now stays, so a full collection need not look at it, and is short. It comes
        # once a quarter as many objects are new as the last one found, hence the second one: what
        # little is left in cycles would pile up for hundreds of requests.
        gc.collect()
        gc.freeze()
        gc.collect()


def build_engine(model: Any, method: Method, settings: ChatSettings, pages: int) -> Any:
    """The engine, as the thread that owns it makes it."""
    limit = settings.time_per_token_ms
    return Engine(
        model, method, max_rows=settings.max_rows, prefill_chunk=settings.prefill_chunk,
        pages=pages, prefix_caching=settings.prefix_caching, compile=settings.compile,
        verify_every=settings.verify_every,
        pace=None if limit is None else TokenPace(limit / 1e3),
    )  # fmt: skip


def trial_inputs(target: Loaded) -> dict[str, Any]:
    """Returns inputs of a short prompt."""
    ids = target.tokenizer("1 2 3", add_special_tokens=False)["input_ids"] or [0]
    tokens = torch.tensor([ids])  # [1, tokens]
    return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}


def try_engine(engine: Any, inputs: dict[str, Any]) -> Any:
    """Returns an engine that has answered a request of its own: the first client waits for nothing,
    and a model that fails at each step is not served on.

    Raises:
        Exception: that the request ended with; the engine is of no use then.
    """
    request = engine.add_request(inputs, max_new_tokens=TRIAL_TOKENS)
    engine.run()
    if request.error is not None:
        raise request.error
    return engine
