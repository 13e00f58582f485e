"""The model that is served: names, adapters, methods, memory, and what is refused before."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

import sooner
import tiny
from sooner.cli.serve import miniature_of
from sooner.errors import SoonerError
from sooner.serve import model as module
from sooner.serve.model import build_engine, check_servable, kv_memory, serving_method
from sooner.serve.settings import ChatSettings
from sooner.tasks.loading import Loaded, ModelPair


def loaded(family: str = "qwen2", name: str = "some/model", processor: Any = None) -> Loaded:
    return Loaded(name, tiny.model(family), processor, family in tiny.TEXT_FAMILIES)


def test_the_miniature_is_named_by_a_word() -> None:
    assert miniature_of("Qwen/Qwen3-VL-8B-Instruct") is None
    assert miniature_of("./miniature") is None
    assert miniature_of("miniature") == "video"
    assert miniature_of("miniature:document") == "document"
    with pytest.raises(SoonerError, match="did you mean 'miniature'"):
        miniature_of("minature")
    with pytest.raises(SoonerError, match="did you mean 'document'"):
        miniature_of("miniature:documnt")


def test_policies_and_models_that_draw_are_sent_to_another_command() -> None:
    with pytest.raises(SoonerError, match="sooner act serve"):
        check_servable(ModelPair(loaded("openvla")))
    config = SimpleNamespace(model_type="chameleon")
    drawing = Loaded("a/b", SimpleNamespace(config=config), SimpleNamespace())
    with pytest.raises(SoonerError, match="sooner imagine"):
        check_servable(ModelPair(drawing))
    check_servable(ModelPair(loaded("qwen2")))


class _Part:
    def __init__(self, **report: Any) -> None:
        self.report = report

    def to_dict(self) -> dict[str, Any]:
        return self.report


def test_a_draft_that_sees_other_pixels_is_refused() -> None:
    def seeing(size: int) -> Loaded:
        processor = SimpleNamespace(image_processor=_Part(size=size))
        return loaded("qwen3_vl", processor=processor)

    check_servable(ModelPair(seeing(28), seeing(28)))
    with pytest.raises(SoonerError, match="processes pixels otherwise"):
        check_servable(ModelPair(seeing(28), seeing(56)))
    check_servable(ModelPair(seeing(28), loaded("qwen2")))  # it reads the words alone


def test_the_method_is_the_best_that_the_models_allow() -> None:
    alone, pair = ModelPair(loaded()), ModelPair(loaded(), loaded())
    for models, requested, name in (
        (alone, None, "prompt-lookup"), (pair, None, "speculative"), (pair, "plain", "plain"),
    ):  # fmt: skip
        method = serving_method(models, ChatSettings(method=requested))
        assert method.name == name
    assert serving_method(alone, ChatSettings(method="hsd")).name == "hsd"
    with pytest.raises(SoonerError, match="needs a draft"):
        serving_method(alone, ChatSettings(method="speculative"))


def test_an_adapter_that_is_not_merged_is_refused() -> None:
    tuned: Any = SimpleNamespace(
        config=SimpleNamespace(model_type="qwen2"), _hf_peft_config_loaded=True
    )
    with pytest.raises(SoonerError, match="adapter beside its weights; merge it"):
        check_servable(ModelPair(Loaded("some/model", tuned, None, True)))


TOKEN = 2 * 3 * 2 * 12 * 4
"""Bytes of a token: keys and values of 3 layers, 2 heads of 12 numbers in fp32."""
GIB = 1 << 30


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
