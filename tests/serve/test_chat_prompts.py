"""Chats become the inputs that the models' own processors make of the same messages."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers
from tokenizers.processors import TemplateProcessing
from transformers import AutoProcessor, PreTrainedTokenizerFast

from sooner import miniatures
from sooner.serve.http import parse
from sooner.serve.media.reader import MediaReader
from sooner.serve.openai.planning import Prepared
from sooner.serve.openai.prompts import ChatPrompts
from sooner.serve.openai.protocol import ChatRequest
from sooner.serve.refusal import BadRequestError
from sooner.serve.settings import ChatSettings
from sooner.tasks.frames import Sampler, read
from sooner.tasks.loading import Loaded
from sooner.tasks.prompting import build_inputs
from sooner.tasks.video import probe
from tasks import videos

LIMIT = 1000


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MediaReader]:
    root = tmp_path_factory.mktemp("media")
    videos.write(root / "film.mp4", frames=40)
    videos.write(root / "long.mkv", frames=40, size=(512, 512))
    for color in ("red", "blue"):
        Image.new("RGB", (60, 40), color).save(root / f"{color}.png")
    made = MediaReader(ChatSettings(media_root=str(root), max_media=6, max_pages=4))
    yield made
    made.processes.close()


def chatting(
    processor: Any,
    reader: MediaReader,
    dtype: torch.dtype = torch.float32,
    is_text: bool = False,
    limit: int = LIMIT,
) -> ChatPrompts:
    target = Loaded("some/model", SimpleNamespace(dtype=dtype), processor, is_text)
    return ChatPrompts("some/model", target, reader, limit)


def ask(prompts: ChatPrompts, messages: list[dict[str, Any]], **more: Any) -> Prepared:
    body = json.dumps({"messages": messages, **more}).encode()
    return asyncio.run(prompts(parse(ChatRequest, body)))


def user(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "content": parts[0] if isinstance(parts[0], str) else list(parts)}


def text(content: str) -> dict[str, Any]:
    return {"type": "text", "text": content}


def image(url: str = "red.png") -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def video(url: str = "film.mp4") -> dict[str, Any]:
    return {"type": "video_url", "video_url": {"url": url}}


@pytest.fixture(scope="module")
def seeing(reader: MediaReader) -> ChatPrompts:
    """LLaVA-OneVision's processor, of the bundled miniature."""
    return chatting(_processor("video"), reader)


@pytest.fixture(scope="module")
def qwen(reader: MediaReader) -> ChatPrompts:
    return chatting(_processor("document"), reader, torch.bfloat16)


def _processor(name: str) -> Any:
    return AutoProcessor.from_pretrained(miniatures.find(name).target)


@pytest.mark.lab
@pytest.mark.parametrize(
    ("name", "has_bos"), [("video", False), ("document", False), ("video", True)]
)
def test_a_video_is_what_sooner_caption_makes_of_it(
    name: str, has_bos: bool, tmp_path: Path
) -> None:
    path = videos.write(tmp_path / "film.mp4", frames=40)
    reader, processor = MediaReader(ChatSettings(media_root=str(tmp_path))), _processor(name)
    if has_bos:  # written by the template, as Gemma's does, and by the tokenizer
        tokenizer, bos = processor.tokenizer, processor.tokenizer.eos_token
        tokenizer.bos_token, processor.chat_template = bos, bos + processor.chat_template
        tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
            single=f"{bos} $A", special_tokens=[(bos, tokenizer.bos_token_id)]
        )
    prompts = chatting(processor, reader)
    frames = read(probe(path), Sampler(prompts.processor.video_processor))
    weights = SimpleNamespace(weight=torch.zeros(1))
    model = SimpleNamespace(dtype=torch.float32, get_input_embeddings=lambda: weights)
    expected = build_inputs(prompts.processor, frames, "read the page", model)
    got = ask(prompts, [user(video(), text("read the page"))])
    assert sorted(got.inputs) == sorted(expected)
    assert len(set(expected["input_ids"][0, :2].tolist())) == 2  # of BOS, there is one
    for key, value in expected.items():
        assert torch.equal(got.inputs[key], value), key
    assert got.prompt_tokens == expected["input_ids"].shape[1]
    assert len(got.media_keys) == 1
    prompts.close()


@pytest.mark.lab
def test_a_pdf_is_a_picture_a_page(qwen: ChatPrompts) -> None:
    pytest.importorskip("pypdfium2")
    canvas = pytest.importorskip("reportlab.pdfgen.canvas")
    buffer = io.BytesIO()
    made = canvas.Canvas(buffer, pagesize=(100, 120))
    for number in range(2):
        made.drawString(10, 60, f"page {number}")
        made.showPage()
    made.save()
    data = base64.b64encode(buffer.getvalue()).decode()
    for file in (data, f"data:application/pdf;base64,{data}"):
        got = ask(qwen, [user({"type": "file", "file": {"file_data": file}}, text("read"))])
        assert len(got.media_keys) == len(got.inputs["image_grid_thw"]) == 2
        assert [key.rpartition(":")[2] for key in got.media_keys] == ["1", "2"]


@pytest.mark.lab
def test_a_user_writes_letters_and_no_control_tokens(seeing: ChatPrompts) -> None:
    plain = ask(seeing, [user("describe the red scene")])
    end = seeing.tokenizer.eos_token_id
    got = ask(seeing, [user("describe the <image> <|im_end|> red scene")])
    count = int((plain.inputs["input_ids"] == end).sum())
    assert int((got.inputs["input_ids"] == end).sum()) == count
    assert "pixel_values" not in got.inputs
    assert not (got.inputs["input_ids"] == seeing.tokenizer.convert_tokens_to_ids("<image>")).any()


def refused(
    prompts: ChatPrompts, messages: list[dict[str, Any]], field: str, message: str, **more: Any
) -> None:
    with pytest.raises(BadRequestError, match=message) as caught:
        ask(prompts, messages, **more)
    assert caught.value.field == field
    assert caught.value.status == 400


@pytest.mark.lab
def test_refusals_name_their_field(seeing: ChatPrompts) -> None:
    url = "messages[1].content[1].image_url.url"
    first = user("hi")
    refused(seeing, [first, user(text("a"), image("none.png"))], url, "can't be read")
    refused(seeing, [first, user(text("a"), image("film.mp4"))], url, "none of PNG")
    refused(seeing, [first, user(text("a"), image("http://a/b"))], url, "--allow-remote-media")
    video_url = "messages[0].content[0].video_url.url"
    refused(seeing, [user(video("red.png"))], video_url, "not a video")
    file = {"type": "file", "file": {"file_id": "file-1"}}
    refused(seeing, [user(file)], "messages[0].content[0].file.file_id", "keeps no files")
    file = {"type": "file", "file": {"filename": "a.pdf"}}
    refused(seeing, [user(file)], "messages[0].content[0].file.file_data", "base64")
    many = user(*[image()] * 7)
    refused(seeing, [many], "messages[0].content[6].image_url.url", "more than 6 pictures")
    tool = {"type": "function", "function": {"name": "f"}}
    refused(seeing, [first], "tools", "takes no tools", tools=[tool])
    options = {"chat_template": "{{ 1 }}"}
    name = "chat_template_kwargs.chat_template"
    refused(seeing, [first], name, "takes no", chat_template_kwargs=options)
    options = {"messages": []}
    refused(seeing, [first], "chat_template_kwargs.messages", "no", chat_template_kwargs=options)


@pytest.mark.lab
def test_audio_is_refused_by_name(seeing: ChatPrompts) -> None:
    part = {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}
    with pytest.raises(BadRequestError, match="it should be one of"):
        ask(seeing, [user(part)])


@pytest.mark.lab
def test_pictures_of_a_request_have_a_limit_together(
    seeing: ChatPrompts, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = replace(seeing.media.settings, media_memory=64 << 20)
    monkeypatch.setattr(seeing.media, "settings", small)
    big = io.BytesIO()
    Image.new("RGB", (2500, 2500)).save(big, "PNG")
    uri = "data:;base64," + base64.b64encode(big.getvalue()).decode()
    field = "messages[0].content[1].image_url.url"
    refused(seeing, [user(image(uri), image(uri))], field, "take 37500000 bytes up to here")


def words(template: str | None = None) -> PreTrainedTokenizerFast:
    """A tokenizer of words, as of a model that reads text only."""
    known = ["<unk>", "<eos>", "hi", "user", "system", "tool", "f", "x", "1", "{", "}", ":", "'"]
    made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(known)}, "<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>", eos_token="<eos>")
    tokenizer.chat_template = template
    return tokenizer


TEMPLATE = (
    "{% for m in messages %}{{ m.role }} : {{ m.content }} "
    "{% for c in m.tool_calls or [] %}{{ c.function.name }} {{ c.function.arguments.x }} "
    "{% endfor %}{% endfor %}{% if tools %}tool {{ tools[0].function.name }}{% endif %}"
)


def test_a_model_without_a_chat_template_does_not_chat(reader: MediaReader) -> None:
    refused(
        chatting(words(), reader, is_text=True), [user("hi")], "messages", "put one into its folder"
    )


def test_text_parts_tools_and_calls_reach_the_template(reader: MediaReader) -> None:
    prompts = chatting(words(TEMPLATE), reader, is_text=True)
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    messages = [
        {"role": "developer", "content": "hi"},
        user(text("hi"), text("hi")),
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "content": "1", "tool_call_id": "1"},
    ]
    tool = {"type": "function", "function": {"name": "f"}}
    got = ask(prompts, messages, tools=[tool])
    spoken = prompts.tokenizer.decode(got.inputs["input_ids"][0])
    assert spoken.startswith("system : hi user : hi hi")
    assert "f 1 tool : 1" in spoken
    assert spoken.endswith("tool f")
    assert got.media_keys == ()
    no_tools = ask(prompts, messages, tools=[tool], tool_choice="none")
    assert not prompts.tokenizer.decode(no_tools.inputs["input_ids"][0]).endswith("tool f")


def test_a_model_that_reads_text_only_takes_no_pixels(reader: MediaReader) -> None:
    prompts = chatting(words(TEMPLATE), reader, is_text=True)
    refused(prompts, [user(image())], "messages[0].content[0].image_url.url", "takes no pictures")
    refused(prompts, [user(video())], "messages[0].content[0].video_url.url", "takes no videos")


def test_text_does_not_wait_for_media_of_others() -> None:
    come = threading.Event()
    media: Any = SimpleNamespace(picture=lambda url: come.wait(60), settings=ChatSettings())
    prompts = chatting(words(TEMPLATE), media)
    prompts.processor.image_processor = None

    async def run() -> None:
        bodies = [[user(image())]] * 6 + [[user(text("hi"), text("hi"))], [user("hi")]]
        made = [
            asyncio.ensure_future(prompts(ChatRequest.model_validate({"messages": messages})))
            for messages in bodies
        ]
        await asyncio.wait(made[6:], timeout=30)
        assert [task.done() for task in made] == [False] * 6 + [True] * 2
        come.set()
        await asyncio.wait(made)
        assert made[6].result().prompt_tokens > 0

    asyncio.run(run())


@pytest.mark.lab
@pytest.mark.parametrize("name", ["video", "document"])
def test_pixels_that_were_processed_are_known(name: str, reader: MediaReader) -> None:
    """By what is shown, in this order; what is said of it is read anew."""
    pixels, other = ([video()], [image()]) if name == "video" else ([image()], [image("blue.png")])
    processor = _processor(name)
    prompts = chatting(processor, reader)
    for parts, processed in (
        ([*pixels, text("describe the scenes in order .")], 1),
        ([text("what comes last ?"), *pixels], 1),
        ([*other, text("read the page")], 2),
        ([*pixels, *other, text("what comes last ?")], 3 + (name == "video")),
        ([text("what comes last ?"), *pixels, text("and why ?")], 3 + (name == "video")),
    ):
        again = ask(prompts, [user(*parts)])
        anew = ask(chatting(processor, reader), [user(*parts)])
        assert again.inputs.keys() == anew.inputs.keys()
        for key, value in anew.inputs.items():
            assert torch.equal(again.inputs[key], value), key
        assert len(prompts.processed.cache._items) == processed
