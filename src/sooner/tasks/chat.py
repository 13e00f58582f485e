"""Answers a chat with a model of texts: messages in, one record out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from .caption import CaptionCallbacks, answer, verify_prompt
from .clip import Prompt, room_notes, timed
from .identity import read_prompts
from .loading import ModelPair
from .prompting import positions_left, written
from .settings import CaptionSettings

Messages = Sequence[dict[str, Any]]
"""Messages of a chat, as chat templates read them: `{"role": "user", "content": "..."}`."""


def prepare(messages: Messages, pair: ModelPair, settings: CaptionSettings) -> Prompt:
    """Returns a chat as the target's inputs, `input_ids` `[1, width]`.

    Raises:
        SoonerError: the tokenizer has no chat template, or the chat does not fit the model.
    """
    target, seconds = pair.target, dict[str, float]()
    with timed(seconds, "processor"):
        text = written(target.tokenizer, list(messages))
        inputs = target.tokenizer(text, add_special_tokens=False, return_tensors="pt")
    room = positions_left(target.model, inputs, "the chat makes", "begin a new one, or shorten it")
    return Prompt(
        inputs=dict(inputs.to(target.model.device)),
        max_new_tokens=min(settings.max_new_tokens, room),
        seconds=seconds,
        notes=room_notes(room, settings),
    )


def verify(
    path: Path, pair: ModelPair, settings: CaptionSettings,
    on_stage: Callable[[str], None] = lambda name: None,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Decode the questions of a text file, a line each, by a method and by HF's own `generate`.

    Yields:
        A record of each line that is not blank, as `caption.verify` has it; its `file` has the
        number of the line behind a colon.

    Raises:
        SoonerError: sampling was asked for, or as `read_prompts`.
    """
    for number, line in read_prompts(path):
        prompt = prepare([{"role": "user", "content": line}], pair, settings)
        yield {"file": f"{path}:{number}", **verify_prompt(prompt, pair, settings, on_stage)}


def chat(
    messages: Messages, pair: ModelPair, settings: CaptionSettings | None = None,
    callbacks: CaptionCallbacks | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Returns the record of an answer, ready for JSON: its text, counts, speeds, and how it
    compares with plain decoding, if the settings ask for that.

    Args:
        messages: the chat so far, the question last.
        pair: the models, see `load_pair(sees=False)`.
        settings: how it is decoded; their fields about videos are ignored.
        callbacks: told what happens.

    Raises:
        SoonerError: as `prepare`, or the method can't be used; one line.
    """
    settings, callbacks = settings or CaptionSettings(), callbacks or CaptionCallbacks()
    prompt = prepare(messages, pair, settings)
    _, record = answer(prompt, pair, settings, callbacks)
    width = prompt.inputs["input_ids"].shape[1]
    return {**record, "prompt_tokens": width, "model": pair.target.name, "notes": prompt.notes}
