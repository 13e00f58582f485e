"""Chats to a model's inputs: its own chat template, its own processor, media in their order.

A request's text can't write control tokens: where transformers can tell them from the template's
own (5.23), `<|im_end|>` and `<image>` in a message are letters, whatever they mean to the model.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import logging
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from typing import Any, Literal

import torch
from PIL import Image

from ...errors import reason_of
from ...tasks.frames import Frames, Sampler, metadata
from ...tasks.loading import Loaded
from ...tasks.prompting import measure
from ...tasks.video import VideoInfo
from ..media.reader import MediaReader, ProcessedMedia
from ..media.sources import MediaBusyError, MediaError
from ..refusal import BadRequestError, RefusedError, too_long
from .planning import Prepared
from .protocol import ChatRequest, ImagePart, Message, RefusalPart, TextPart, VideoPart, text_of

logger = logging.getLogger("sooner.serve")

MAX_CONCURRENT = 4
"""Requests whose pixels are in memory at a time; others wait."""
LONGEST = 128
"""Characters that a token may stand for, at least: some tokenizers make one of any unknown word."""
RESERVED = ("messages", "tools", "add_generation_prompt", "continue_final_message")
"""What a chat template is given that no request may set by `chat_template_kwargs`."""
IGNORED = ("enable_thinking", "thinking", "reasoning_effort")
"""Variables of some templates that clients always send, whether the template reads them or not."""
ROLES = {"developer": "system", "function": "tool"}
SANITIZES = "sanitize_control_tokens"


class ChatPrompts:
    """Makes inputs of chats: `await prompts(request)`; see `served.Prepare`.

    Args:
        name: of the model, as its clients know it.
        target: the model with its processor, or with its tokenizer if it reads text only.
        media: gets pixels, within the limits of its settings.
        max_model_len: tokens that prompt and answer may have together.
    """

    def __init__(self, name: str, target: Loaded, media: MediaReader, max_model_len: int) -> None:
        self.name, self.target, self.media = name, target, media
        # The tokenizer is not safe in two threads, and answers are turned into text elsewhere.
        self.processor = copy.deepcopy(target.processor)
        self.processed = ProcessedMedia(self.processor)
        self.max_model_len = max_model_len
        self.template = _template(self.processor)
        apply = getattr(self.processor, "apply_chat_template", None)
        self._sanitizes = apply is not None and SANITIZES in inspect.signature(apply).parameters
        self._longest = max(LONGEST, *map(len, self.tokenizer.get_vocab()))
        # Text does not wait for others' pixels, so it has a processor and a thread of its own.
        self._of_text = self.processor if target.is_text else copy.deepcopy(target.processor)
        self._reading = ThreadPoolExecutor(MAX_CONCURRENT, "media")
        self._writing, self._writing_text = (ThreadPoolExecutor(1, "prompts") for _ in range(2))
        self._slots = asyncio.Semaphore(MAX_CONCURRENT)

    @property
    def tokenizer(self) -> Any:
        return getattr(self.processor, "tokenizer", self.processor)

    async def __call__(self, request: ChatRequest) -> Prepared:
        """Returns inputs of a chat.

        Raises:
            BadRequestError: no chat template, media that are refused, or a prompt that is too long.
            RefusedError: 429 where all processes that decode are taken.
        """
        if self.template is None:
            raise BadRequestError(
                "messages",
                f"model '{self.name}' has no chat template; put one into its folder, or serve an "
                "instruction-tuned checkpoint",
                "no_chat_template",
            )
        self._check(request)
        run, chat = asyncio.get_running_loop().run_in_executor, _Chat(self)
        slots: Any = self._slots if any(map(has_media, request.messages)) else nullcontext()
        async with slots:
            for index, message in enumerate(request.messages):
                path = f"messages[{index}]"
                if has_media(message):  # which may take long to come
                    await run(self._reading, chat.add, path, message)
                else:
                    chat.add(path, message)
            pool = self._writing if chat.keys else self._writing_text
            return await run(pool, self._prepare, chat, request)

    def close(self) -> None:
        """End the threads, and the processes that decode."""
        self.media.processes.close()
        for pool in (self._reading, self._writing, self._writing_text):
            pool.shutdown(wait=False, cancel_futures=True)

    def _check(self, request: ChatRequest) -> None:
        """Refuse what needs no template to be refused."""
        letters = sum(len(text_of(message.content)) for message in request.messages)
        if letters > self.max_model_len * self._longest:
            raise BadRequestError(
                "messages",
                f"the messages have {letters} characters, and the model takes "
                f"{self.max_model_len} tokens, of {self._longest} characters at most; send a "
                "shorter prompt",
                "context_length_exceeded",
            )
        if request.template_tools and not self._template_reads("tools"):
            raise BadRequestError(
                "tools", f"the chat template of '{self.name}' takes no tools; leave them out"
            )
        for name in request.chat_template_kwargs or ():
            if name in RESERVED or not (self._template_reads(name) or name in IGNORED):
                raise BadRequestError(
                    f"chat_template_kwargs.{name[:64]}",
                    f"the chat template of '{self.name}' takes no '{name[:64]}'; leave it out",
                )

    def _template_reads(self, name: str) -> bool:
        """Returns whether the template reads a variable."""
        is_name = name.isidentifier()
        return is_name and re.search(rf"\b{name}\b", self.template or "") is not None

    def _prepare(self, chat: _Chat, request: ChatRequest) -> Prepared:
        """Returns a chat's inputs; in the one thread that may use its processor."""
        if chat.keys:
            self.processed.media_keys = tuple(chat.keys)
        try:
            batch = self._processed(chat, request)
        except (MemoryError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            # Templates and processors refuse messages and pictures with errors of many kinds.
            logger.info("a prompt can't be written", exc_info=error)
            raise BadRequestError(
                "messages",
                f"the model's own template and processor refuse these messages: {reason_of(error)}",
            ) from error
        inputs = dict(batch.items())
        for name, value in inputs.items():  # times in bfloat16 would be off by frames
            if isinstance(value, torch.Tensor) and name.startswith("pixel_values"):
                inputs[name] = value.to(self.target.model.dtype)
        tokens = int(inputs["input_ids"].shape[1])
        if tokens >= self.max_model_len:
            raise too_long(tokens, 1, self.max_model_len)
        return Prepared(inputs, tokens, tuple(chat.keys))

    def _processed(self, chat: _Chat, request: ChatRequest) -> Any:
        variables = dict(request.chat_template_kwargs or {})
        if request.reasoning_effort is not None:
            variables.setdefault("reasoning_effort", request.reasoning_effort)
        options: dict[str, Any] = {
            "tools": request.template_tools, "add_generation_prompt": True, "tokenize": True,
            "return_dict": True, "return_tensors": "pt",
            **{name: value for name, value in variables.items() if self._template_reads(name)},
        }  # fmt: skip
        if not hasattr(self.processor, "chat_template"):
            options["chat_template"] = self.template
        if chat.frames:
            options["processor_kwargs"] = {
                "videos_kwargs": {
                    "do_sample_frames": False,
                    "input_data_format": "channels_last",
                    "video_metadata": [metadata(clip.info, clip.indices) for clip in chat.frames],
                }
            }
        apply = (self.processor if chat.keys else self._of_text).apply_chat_template
        if not self._sanitizes:
            return apply(chat.messages, **options)
        try:
            return apply(chat.messages, **options, sanitize_control_tokens=True)
        except NotImplementedError:  # a tokenizer that puts tokens of its own around the template's
            return apply(chat.messages, **options)


class _Chat:
    """Messages as a chat template takes them, and their pixels in order.

    Attributes:
        messages: with pictures and frames in their parts.
        frames: of each video.
        keys: content hashes.
    """

    def __init__(self, prompts: ChatPrompts) -> None:
        self.prompts = prompts
        self.messages: list[dict[str, Any]] = []
        self.frames: list[Frames] = []
        self.keys: list[str] = []
        self._bytes = 0

    def add(self, path: str, message: Message) -> None:
        """One message; fetches and decodes its media."""
        fields = message.model_dump(exclude_none=True, exclude={"content", "role"})
        fields["role"] = ROLES.get(message.role, message.role)
        if isinstance(message.content, str):
            fields["content"] = self._content([{"type": "text", "text": message.content}])
        elif message.content is None:
            # Calls alone. transformers drops keys whose value is None, and many templates join or
            # print the content of every message.
            fields["content"] = ""
        else:
            parts: list[dict[str, Any]] = []
            for index, part in enumerate(message.content):
                parts += self._parts(f"{path}.content[{index}]", part)
            fields["content"] = self._content(parts)
        self.messages.append(fields)

    def _content(self, parts: list[dict[str, Any]]) -> Any:
        """Returns a string where the template takes one, else the parts."""
        is_text = all(part["type"] == "text" for part in parts)
        template = self.prompts.template or ""
        takes_text = self.prompts.target.is_text or "is string" in template
        if is_text and takes_text:
            return "\n".join(part["text"] for part in parts)
        return parts

    def _parts(self, path: str, part: Any) -> list[dict[str, Any]]:
        """Returns a part of a request as parts of a template; a PDF is a picture a page."""
        if isinstance(part, TextPart | RefusalPart):
            text = part.text if isinstance(part, TextPart) else part.refusal
            return [{"type": "text", "text": text}]
        media = self.prompts.media
        if isinstance(part, VideoPart):
            get: Callable[[], Any] = partial(media.video, part.video_url.url, self._choose)
            [frames] = self._load_media(f"{path}.video_url.url", "video", get)
            self.frames.append(frames)
            # A copy: the frames are cached, and processors may write into what they get.
            return [{"type": "video", "video": torch.from_numpy(frames.pixels.copy())}]
        if isinstance(part, ImagePart):
            path, get = f"{path}.image_url.url", partial(media.picture, part.image_url.url)
        elif part.file.file_id is not None or part.file.file_data is None:
            field = "file_data" if part.file.file_id is None else "file_id"
            text = "this server keeps no files; send the PDF as file_data, in base64"
            raise BadRequestError(f"{path}.file.{field}", text)
        else:
            path, get = f"{path}.file.file_data", partial(media.pages, part.file.file_data)
        pictures = self._load_media(path, "image", get)
        return [{"type": "image", "image": Image.fromarray(pixels)} for pixels in pictures]

    def _load_media(
        self, path: str, kind: Literal["image", "video"], get: Callable[[], Any]
    ) -> list[Any]:
        """Returns what `get` gets, counted; its errors are refusals of the field."""
        if not hasattr(self.prompts.processor, f"{kind}_processor"):
            what = "pictures" if kind == "image" else "videos"
            raise BadRequestError(path, f"model '{self.prompts.name}' takes no {what}; send text")
        limits = self.prompts.media.settings
        try:
            media = get()
        except MediaError as error:
            raise BadRequestError(path, f"{path}: {error}", "invalid_media") from error
        except MediaBusyError as error:
            raise RefusedError(429, str(error), path, "media_busy", {"Retry-After": "2"}) from error
        self.keys += [key for _, key in media]
        self._bytes += sum(getattr(item, "pixels", item).nbytes for item, _ in media)
        if len(self.keys) > limits.max_media:
            text = f"the request has more than {limits.max_media} pictures, videos and pages"
            raise BadRequestError(path, f"{text}; send fewer", "invalid_media")
        if self._bytes > (limit := limits.media_memory // 2):
            raise BadRequestError(
                path,
                f"the request's pictures take {self._bytes} bytes up to here; at most "
                f"{limit} are taken, send fewer or smaller ones",
                "invalid_media",
            )
        return [item for item, _ in media]

    def _choose(self, info: VideoInfo) -> list[int]:
        """Frames as the model's processor samples them; refuses those that can't fit at all."""
        processor, limit = self.prompts.processor, self.prompts.max_model_len
        indices = Sampler(processor.video_processor)(info)
        shapes = measure(processor, info, indices, "")
        if shapes and (tokens := shapes["input_ids"].shape[1]) >= limit:
            raise MediaError(
                f"its {len(indices)} frames of {info.width} x {info.height} px make {tokens} "
                f"tokens, and the model takes {limit}; send a shorter or smaller one"
            )
        return indices


def has_media(message: Message) -> bool:
    """Returns whether something is to be decoded for a message."""
    parts = message.content if isinstance(message.content, list) else ()
    return not all(isinstance(part, TextPart | RefusalPart) for part in parts)


def _template(processor: Any) -> str | None:
    """Returns the chat template of a processor or its tokenizer; `None` if there is none."""
    template = getattr(processor, "chat_template", None)
    if template is None:
        template = getattr(getattr(processor, "tokenizer", None), "chat_template", None)
    if isinstance(template, dict):
        return template.get("default") or next(iter(template.values()), None)
    return template
