"""`sooner chat`: questions to a model of texts, answered in the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any

from ..checks import option
from ..errors import SoonerError
from ..tasks.settings import CaptionSettings
from . import options
from .caption import summary
from .display import Display
from .from_settings import Fields, from_settings

DECODING_OPTIONS = Fields(
    only=(
        "method", "num_draft_tokens", "head", "max_new_tokens", "temperature", "top_p", "seed",
        "compare", "verify_every",
    ),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ChatJob:
    """A conversation, and the models that answer in it.

    Attributes:
        questions: of one conversation, in this order; without any, what is typed, a line each, or
            the whole of what comes through a pipe.
        system: an instruction that stands before them.
    """

    questions: list[str] | None = option(None, metavar="[QUESTION...]", positional=True)
    system: str | None = None
    settings: Annotated[CaptionSettings, DECODING_OPTIONS] = field(default_factory=CaptionSettings)
    models: options.Models = field(default_factory=options.Models)

    def read_questions(self) -> Iterator[str]:
        """Yields the questions as they come."""
        if self.questions:
            yield from self.questions
        elif not sys.stdin.isatty():
            yield sys.stdin.read()
        else:
            with suppress(EOFError):
                yield from iter(partial(input, "> "), "")

    def load(self, display: Display) -> Any:
        """Returns the models; without `--model`, the real one that is installed.

        Raises:
            SoonerError: none is named, and none is installed; or they can't be loaded.
        """
        from ..checkpoints import installed

        model = self.models.model or next(iter(installed()), None)
        if model is None:
            raise SoonerError(
                "no model given; name a model of texts with --model, such as a hub id or a folder"
            )
        with display.loading():
            models = replace(self.models, model=model)
            return models.load(method=self.settings.method, sees=False)


@from_settings
def chat(*, request: ChatJob, display: Display) -> None:
    """Answer questions with a model of texts, token for token as it would alone.

    Accepted draft tokens are tinted. An empty line, or Ctrl-D, ends a conversation that is typed.
    """
    from ..tasks.caption import CaptionCallbacks
    from ..tasks.chat import chat as answer

    pair = request.load(display)
    messages: list[dict[str, Any]] = []
    if request.system is not None:
        messages.append({"role": "system", "content": request.system})
    callbacks = CaptionCallbacks(
        on_stage=display.text_stage, on_text=display.text, on_count=display.generated
    )
    for question in request.read_questions():
        if not question.strip():
            raise SoonerError("the question is empty; write one")
        messages.append({"role": "user", "content": question})
        with display.job():
            record = answer(messages, pair, request.settings, callbacks)
        messages.append({"role": "assistant", "content": record["text"]})
        display.notes(record["notes"])
        display.lines(summary(record))
