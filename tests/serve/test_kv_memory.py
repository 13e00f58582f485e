"""How many pages a server takes, and how long its requests may be."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import sooner
import tiny
from sooner.errors import SoonerError
from sooner.serve import model as module
from sooner.serve.chat_run import build_engine
from sooner.serve.model import kv_memory
from sooner.serve.settings import ChatSettings
from sooner.tasks.loading import Loaded, ModelPair

TOKEN = 2 * 3 * 2 * 12 * 4
"""Bytes of a token: keys and values of 3 layers, 2 heads of 12 numbers in fp32."""
GIB = 1 << 30


def loaded(family: str = "qwen2") -> Loaded:
    return Loaded("some/model", tiny.model(family), None, True)


PAIR = ModelPair(loaded())
PLAIN = sooner.Autoregressive()


def test_without_a_gpu_there_is_room_for_all_rows() -> None:
    memory = kv_memory(PAIR, PLAIN, ChatSettings(max_rows=5))
    assert memory.page_bytes == 256 * TOKEN
    assert (memory.pages, memory.max_model_len) == (5 * 3, 512)  # a round writes behind the last
    assert memory.share == 512
    engine = build_engine(tiny.model("qwen2"), PLAIN, ChatSettings(max_rows=5), memory.pages)
    assert (engine.pages, engine.pages_used, engine.memory.prefix_caching) == (15, 0, True)
    off = ChatSettings(prefix_caching=False)
    assert not build_engine(tiny.model("qwen2"), PLAIN, off, 9).memory.prefix_caching


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_model_len": 600}, "max_model_len is 600, and the models know 512 positions"),
        ({"kv_cache_memory_bytes": 1000}, "is 0 pages of 256 tokens .* in which 0 tokens"),
        (
            {"kv_cache_memory_bytes": 256 * TOKEN, "max_model_len": 400},
            "1 pages of 256 tokens .* 255 tokens of a request fit, and 400 are wanted",
        ),
    ],
)
def test_too_little_is_refused_with_the_numbers(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SoonerError, match=message):
        kv_memory(PAIR, PLAIN, ChatSettings(**options))


@pytest.mark.parametrize(("share", "pages"), [(0.5, 1000), (0.95, 8 * 4 * 3), (0.2, None)])
def test_a_gpu_gives_a_share_of_itself(
    share: float, pages: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """16 GiB, of which others and the weights have taken 6; half of it leaves 2."""
    monkeypatch.setattr(module, "gpus_of", lambda model: [torch.device("cuda:0")])
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (10 * GIB, 16 * GIB))
    settings = ChatSettings(gpu_memory_utilization=share)
    if pages is None:
        with pytest.raises(SoonerError, match="is 0 pages"):
            kv_memory(PAIR, PLAIN, settings)
        return
    if share == 0.5:
        monkeypatch.setattr(module.manager, "page_bytes", lambda adapter, method: 2 * GIB // 1000)
        monkeypatch.setattr(module, "CACHE_FACTOR", 1000)
    assert kv_memory(PAIR, PLAIN, settings).pages == pages
