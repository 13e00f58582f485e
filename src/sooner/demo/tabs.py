"""A tab a task: its controls, and how a recording is made of them."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import gradio as gr

from .. import miniatures
from ..checkpoints import installed
from ..errors import SoonerError
from ..registry import choices
from ..tasks.imagine import load_drawing_model
from ..tasks.imagine.drawing_model import DrawingModel
from ..tasks.loading import ModelPair, load_pair
from ..tasks.parse.parser import load_parser
from ..tasks.parse.settings import ParseSettings
from ..tasks.settings import CaptionSettings
from .records import Record, record_chat, record_pages, record_pictures, record_race
from .round_records import Live

Recording = Callable[[Live], Record]
Named = ModelPair | DrawingModel
QUESTIONS = {
    "Edit a function": "Rename text to text_value in this code and write it again:\n"
    + inspect.getsource(textwrap.indent),
    "Explain something": "Explain in a few sentences what the `with` statement of Python is for.",
}
"""What the chat's tab asks, by what it is: an answer that copies, and one that doesn't."""


@dataclass(frozen=True)
class Task:
    """A task that the page shows in a tab.

    Attributes:
        name: of the tab.
        intro: what it is about, in Markdown.
        controls: make Gradio's components, in the order of `plan`'s arguments.
        plan: from the controls' values to the recording.
        opens: whether it is recorded, as the controls stand, when it is first looked at.
    """

    name: str
    intro: str
    controls: Sequence[Callable[[], Any]]
    plan: Callable[..., Recording]
    opens: bool = False


def tasks_of(named: Named | None) -> list[Task]:
    """Returns the tabs that run a model; without one, or with the miniature of videos, those of all
    miniatures that are installed, and of a real model of texts if one is."""
    if isinstance(named, DrawingModel):
        return [pictures(lambda: named, True)]
    if named is not None and named.target.is_text:
        return [chat(lambda: named)]
    if named is not None and named.miniature != "video":
        tasks = [documents(lambda: named, named.miniature is None)]
        return [videos(lambda: named, True), *tasks] if named.miniature is None else tasks
    small = cache(lambda: named or load_pair(miniature="video"))
    known = {
        "video": partial(videos, small), "document": partial(documents, cache(load_parser)),
        "image": partial(pictures, cache(load_drawing_model)),
    }  # fmt: skip
    tasks = [make() for name, make in known.items() if name in miniatures.names()]
    real = next(iter(installed()), None)
    return tasks if real is None else [*tasks, chat(cache(partial(load_pair, real, sees=False)))]


def file_of(name: str | None, miniature: str, is_named: bool) -> Path:
    """Returns an uploaded file, or the miniature's own.

    Raises:
        SoonerError: none was given, and the model is no miniature.
    """
    if name:
        return Path(name)
    if is_named:
        raise SoonerError("no file given; upload one above")
    return miniatures.sample_of(miniature)


def slider(
    label: str, minimum: float, maximum: float, value: float, step: float, about: str | None = None
) -> Callable[[], Any]:
    return lambda: gr.Slider(
        minimum, maximum, value, step=step, label=label, info=about, min_width=270
    )


def seed(value: int = 0) -> Callable[[], Any]:
    return lambda: gr.Number(value, label="Seed", precision=0, min_width=270)


def chat(pair: Callable[[], ModelPair]) -> Task:
    def plan(kind: str, own: str, max_tokens: float) -> Recording:
        question = own.strip() or QUESTIONS[kind]
        settings = CaptionSettings(method="prompt-lookup", max_new_tokens=int(max_tokens))
        return lambda live: record_chat(question, pair(), settings, live)

    return Task(
        "Chat", "A question to a model of texts. Guesses are copied from the text so far: that "
        "wins where the answer repeats it, and should do no harm where it doesn't.",
        (
            lambda: gr.Radio(list(QUESTIONS), value=next(iter(QUESTIONS)), label="Question",
                             min_width=270),
            lambda: gr.Textbox("", label="Or one of your own", lines=3, min_width=270),
            slider("Longest answer", 16, 512, 192, 16, "In words and parts of words."),
        ),
        plan,
        opens=True,
    )  # fmt: skip


def videos(pair: Callable[[], ModelPair], is_named: bool = False) -> Task:
    methods = sorted(name for name, entry in choices().items() if entry.draft_model != "head")
    # Heads came with the miniature.
    files = [] if is_named else miniatures.find("video").target.parent.glob("*/config.json")
    folders = [path.parent for path in sorted(files) if path.parent.name not in ("target", "draft")]
    heads = {folder.name: str(folder) for folder in folders}

    def plan(
        file: str | None, method: str, tokens: float, prune: float, frames: float,
        max_tokens: float, heat: float, seed: float,
    ) -> Recording:  # fmt: skip
        path = file_of(file, "video", is_named)
        settings = CaptionSettings(
            method=method if method in methods else None,
            head=None if method in ("auto", *methods) else heads.get(method, method),
            num_draft_tokens=int(tokens) or "auto",
            prune=prune if method == "parallel" else None, frames=int(frames) or None,
            max_new_tokens=int(max_tokens), temperature=heat, seed=int(seed),
        )  # fmt: skip
        return lambda live: record_race(path, pair(), settings, live)

    return Task(
        "Video", "A clip" + ("." if is_named else ", or nothing for the bundled one."),
        (
            lambda: gr.Video(label="Clip", sources=["upload"], height=180),
            lambda: gr.Dropdown(["auto", *methods, *heads], label="How guesses are made",
                                info="A method, or a draft head: its folder or hub id.",
                                allow_custom_value=True, min_width=270),
            slider("Guesses a round", 0, 16, 0, 1, "0: as many as pay."),
            slider("Hidden from the guesser", 0, 0.95, 0.9, 0.05,
                   "Share of the video; only for parallel."),
            slider("Frames", 0, 64, 0, 1, "0: as many as the model likes."),
            slider("Longest answer", 8, 512, 256, 8, "In words and parts of words."),
            slider("Temperature", 0, 1.5, 0, 0.1, "0: always the likeliest word."),
            seed(),
        ),
        plan,
    )  # fmt: skip


def documents(pair: Callable[..., ModelPair], is_named: bool = False) -> Task:
    def plan(file: str | None, drafter: str, tau: float) -> Recording:
        path = file_of(file, "document", is_named)
        settings = ParseSettings(acceptance_threshold=tau)
        return lambda live: record_pages(path, pair(), settings, drafter, live)

    kinds = [".pdf", ".png", ".jpg", ".jpeg", ".tiff", ".webp"]
    ask = "A PDF or a picture of a page"
    return Task(
        "Document", ask + ("." if is_named else ", or nothing for the bundled one."),
        (
            lambda: gr.File(label="Document", type="filepath", height=140, file_types=kinds),
            lambda: gr.Dropdown(["auto", "ocr", "text-layer", "none"], label="Who drafts",
                                min_width=270),
            slider("Acceptance threshold", 0.5, 1, 1, 0.05,
                   "1: the text stays the model's own; below, the draft's word counts for more."),
        ),
        plan,
        opens=not is_named,
    )  # fmt: skip


def pictures(model: Callable[..., DrawingModel], is_named: bool = False) -> Task:
    def plan(text: str, window: float, heat: float, seed: float) -> Recording:
        options: dict[str, Any] = {
            "jacobi_window": int(window),
            "temperature": heat,
            "seed": int(seed),
        }
        return lambda live: record_pictures(text, model(), options, live)

    prompt = "" if is_named else miniatures.find("image").prompt
    return Task(
        "Picture", "A picture" + ("." if is_named else " of the bundled model's little world."),
        (
            lambda: gr.Textbox(prompt, label="Prompt"),
            slider("Codes guessed ahead", 4, 64, 32, 4),
            slider("Temperature", 0.1, 1.5, 0.7, 0.1, "Low: the likeliest codes; high: variety."),
            seed(1),
        ),
        plan,
        opens=not is_named,
    )  # fmt: skip
