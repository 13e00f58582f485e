"""The page: a tab a task, with its controls, a recording and the command that does the same."""

from __future__ import annotations

import os

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from html import escape
from pathlib import Path
from typing import Any

import gradio as gr
from fastapi import FastAPI

from .. import miniatures
from ..errors import SoonerError
from ..registry import choices
from ..tasks.act.allowance import Allowance
from ..tasks.act.policy import Policy
from ..tasks.imagine import ImagineSettings, load_drawing_model
from ..tasks.loading import ModelPair, load_pair
from ..tasks.parse.loading import load_parser
from ..tasks.parse.settings import ParseSettings
from ..tasks.settings import CaptionSettings
from . import others
from .export import asset, fragment
from .jobs import Job, Jobs, Recording
from .race import record_race

MAX_FILE = "256mb"
"""Of an upload."""
THEME = gr.themes.Default(
    font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"]
).set(
    body_text_color_subdued="#4b5563", body_text_color_subdued_dark="#c9d1d9",
    button_primary_background_fill="#6639ba", button_primary_background_fill_hover="#512a97",
    button_primary_background_fill_dark="#6639ba", button_primary_text_color="#fff",
    button_primary_background_fill_hover_dark="#512a97", button_primary_text_color_dark="#fff",
    color_accent="#6639ba", border_color_accent="#6639ba",
)  # fmt: skip
"""Without fonts of other hosts; with colours that stand out enough (WCAG AA)."""
SAME = "The same on your machine"
"""Label of a command."""
WELCOME = (
    "# sooner\n**Speculative decoding, to watch.** A quick helper guesses what a big model is "
    "about to say, the big model checks many guesses at once, and what comes out is the same, "
    "sooner."
)
STYLE = (
    ".gradio-container{max-width:80rem!important;margin:0 auto!important}"
    "footer{display:none!important}.or,.max_value,.min_value{color:inherit!important}"
    "[role=tab].selected{color:inherit!important}.sooner li{list-style:none!important}"
    "#gone{position:fixed;inset:auto 0 0 0;background:#b3131f;color:#fff;padding:.6rem;z-index:9}"
)
ALIVE = """
setInterval(async () => {
  let is = true;
  try { await fetch("/health", {cache: "no-store"}); } catch { is = false; }
  let box = document.getElementById("gone");
  if (is) { box && box.remove(); return; }
  if (!box) {
    box = document.createElement("div"); box.id = "gone"; box.setAttribute("role", "alert");
    document.body.append(box);
    box.textContent = "The server has gone away. What is shown stays; start the server again, "
      + "then reload this page.";
  }
}, 2000);
"""


@dataclass(frozen=True)
class Task:
    """A tab.

    Attributes:
        name: of the tab.
        intro: what it is about, in Markdown.
        controls: make Gradio's components, in the order of `plan`'s arguments.
        plan: from the controls' values to the recording and the command that does the same.
    """

    name: str
    intro: str
    controls: Sequence[Callable[[], Any]]
    plan: Callable[..., tuple[Recording, str]]


class Tasks:
    """The tabs for what is installed; models are loaded when they are first asked for.

    Args:
        pair: captions videos and reads pages; the miniatures by default.
    """

    def __init__(self, pair: ModelPair | None = None) -> None:
        self._pair = pair

    @cached_property
    def pair(self) -> ModelPair:
        return self._pair or load_pair(miniature="video")

    @cached_property
    def parser(self) -> ModelPair:
        return self._pair if self._pair is not None and self._reads_pages else load_parser(None)

    @property
    def _reads_pages(self) -> bool:
        """Whether pages are read by the pair that was given: any but the miniature of videos."""
        return self._pair is not None and self._pair.miniature != "video"

    def all(self) -> list[Task]:
        have = miniatures.names()
        is_reader = self._pair is not None and self._pair.miniature == "document"
        tasks = [] if is_reader or not (self._pair or "video" in have) else [self._video()]
        if self._reads_pages and "document" not in have:
            tasks.append(self._document())
        made = {"document": self._document, "image": self._picture, "robot": self._robot}
        tasks += [make() for name, make in made.items() if name in have]
        return tasks + ([self._heads()] if "video" in have else [])

    def _video(self) -> Task:
        known = sorted(name for name, one in choices().items() if one.draft_model != "head")
        methods = ["auto", *known]
        heads = heads_of(self._pair)
        is_own = self._pair is None or self._pair.miniature == "video"
        intro = "Upload a clip" + (", or leave it empty for the bundled one." if is_own else ".")

        def plan(
            file: str | None, method: str, head: str | None, tokens: float, prune: float,
            frames: float, most: float, heat: float, seed: float,
        ) -> tuple[Recording, str]:  # fmt: skip
            if not file and not is_own:
                raise SoonerError("no clip given; upload one above")
            path = Path(file) if file else others.sample_of("video")
            head = heads.get(head or "", head or "").strip()
            if head and method != "auto":
                raise SoonerError(
                    "a draft head decides how guesses are made; choose 'auto' beside "
                    "it, or leave the head out"
                )
            has_prune = method in ("parallel", "specvlm", "sparse-to-dense")
            settings = CaptionSettings(
                method=None if method == "auto" else method,
                head=head or None, num_draft_tokens=int(tokens) or "auto",
                prune=prune if has_prune else None, frames=int(frames) or None,
                max_new_tokens=int(most), temperature=heat, seed=int(seed),
            )  # fmt: skip

            def record(tell: Any, stopped: Any) -> dict[str, Any]:
                return record_race(path, self.pair, settings, tell, stopped)

            return record, ""

        return Task(
            "Video", intro,
            (
                lambda: gr.Video(label="Clip", sources=["upload"], height=180),
                lambda: gr.Dropdown(methods, value="auto", label="How guesses are made (draft)"),
                lambda: gr.Dropdown(["", *heads], value="", allow_custom_value=True,
                                    label="Draft head (a name, a folder or a hub id; or none)"),
                lambda: gr.Slider(0, 16, 0, step=1, label="Guesses a round (0: what pays)"),
                lambda: gr.Slider(0, 0.95, 0.9, step=0.05, label="Pruned share of what the draft "
                                  "sees (α; for parallel, specvlm, sparse-to-dense)"),
                lambda: gr.Slider(0, 64, 0, step=1, label="Frames (0: the model's choice)"),
                lambda: gr.Slider(8, 512, 256, step=8, label="Longest answer, in tokens"),
                lambda: gr.Slider(0, 1.5, 0, step=0.1, label="Temperature (0: no chance)"),
                lambda: gr.Number(0, label="Seed", precision=0),
            ),
            plan,
        )  # fmt: skip

    def _document(self) -> Task:
        own = self._pair if self._reads_pages else None
        is_sample = own is None or own.miniature == "document"

        def plan(file: str | None, drafter: str, tau: float) -> tuple[Recording, str]:
            path = Path(file or (others.sample_of("document") if is_sample else ""))
            settings = ParseSettings(acceptance_threshold=tau)

            def record(tell: Any, stopped: Any) -> dict[str, Any]:
                return others.record_pages(path, self.parser, settings, drafter, tell, stopped)

            if not file and not is_sample:
                raise SoonerError("no page given; upload a PDF or a picture above")
            name = "miniature" if is_sample else self.parser.target.name
            what = ["sooner", "parse", path.name if file else "--sample", "--model", name,
                    "--drafter", drafter, "--acceptance-threshold", f"{tau:g}"]  # fmt: skip
            return record, shlex.join([*what, "--compare", "-o", "parsed"])

        return Task(
            "Document", "A PDF or a picture of a page" + (", or nothing for the bundled one." if
            is_sample else "."),
            (
                lambda: gr.File(label="Document", type="filepath", height=140,
                                file_types=[".pdf", ".png", ".jpg", ".jpeg", ".tiff", ".webp"]),
                lambda: gr.Dropdown(["auto", "ocr", "text-layer", "none"], value="auto",
                                    label="Who drafts"),
                lambda: gr.Slider(0.5, 1, 1, step=0.05, label="Acceptance threshold (τ; 1: exact)"),
            ),
            plan,
        )  # fmt: skip

    def _picture(self) -> Task:
        prompt = miniatures.find("image").prompt
        model = cache(load_drawing_model)

        def plan(text: str, window: float, heat: float, seed: float) -> tuple[Recording, str]:
            options: dict[str, Any] = {
                "jacobi_window": int(window),
                "temperature": heat,
                "seed": int(seed),
            }
            ImagineSettings(**options)

            def record(tell: Any, stopped: Any) -> dict[str, Any]:
                return others.record_pictures(text, model(), options, tell, stopped)

            told = [f"--{name.replace('_', '-')}={value:g}" for name, value in options.items()]
            what = ["sooner", "imagine", text, *told, "--compare", "-o", "picture.png"]
            return record, shlex.join(what)

        return Task(
            "Picture", "A picture of the bundled model's little world.",
            (
                lambda: gr.Textbox(prompt, label="Prompt"),
                lambda: gr.Slider(4, 64, 16, step=4, label="Codes guessed ahead"),
                lambda: gr.Slider(0.1, 1.5, 1.0, step=0.1, label="Temperature"),
                lambda: gr.Number(1, label="Seed", precision=0),
            ),
            plan,
        )  # fmt: skip

    def _robot(self) -> Task:
        policy = cache(lambda bins: Policy.load(allowance=Allowance(bins)))

        def plan(bins: float, seed: float) -> tuple[Recording, str]:
            def record(tell: Any, stopped: Any) -> dict[str, Any]:
                return others.record_robot(policy(int(bins)), "table", int(seed), tell, stopped)

            told = f"sooner act rollout --env table --episodes 1 --seed {int(seed)} --compare"
            return record, f"{told} --method relaxed --tolerance {int(bins)}"

        return Task(
            "Robot", "An arm on a drawn table reaches for a ball.",
            (
                lambda: gr.Slider(0, 15, 9, step=1, label="How many steps off is let pass (r)"),
                lambda: gr.Number(0, label="Seed of the scene", precision=0),
            ),
            plan,
        )  # fmt: skip

    def _heads(self) -> Task:
        small = cache(partial(load_pair, miniature="video"))
        table = cache(lambda frames: others.searched_table(small(), frames))

        def plan(layer: float, head: float, frames: float) -> tuple[Recording, str]:
            def record(tell: Any, stopped: Any) -> dict[str, Any]:
                return others.record_heads(small(), int(layer), int(head), int(frames), table, tell)

            where = f"--layer {int(layer)} --head {int(head)} --frames {int(frames)}"
            return record, f"sooner show attention {where}"

        return Task(
            "Long prompts", "Where a model looks while it reads a video.",
            (
                lambda: gr.Slider(0, 6, 6, step=1, label="Layer"),
                lambda: gr.Slider(0, 3, 2, step=1, label="Head"),
                lambda: gr.Slider(8, 48, 24, step=4, label="Frames"),
            ),
            plan,
        )  # fmt: skip


def heads_of(pair: ModelPair | None) -> dict[str, str]:
    """Draft heads that came with the miniature of videos, by name; none of other models."""
    if pair is not None and pair.miniature != "video":
        return {}
    folder = others.sample_of("video").parent / "weights"
    return {one.parent.name: str(one.parent) for one in sorted(folder.glob("*/config.json"))
            if one.parent.name not in ("target", "draft")}  # fmt: skip


def build_page(tasks: Sequence[Task], jobs: Jobs, records: Sequence[dict[str, Any]]) -> gr.Blocks:
    """The page.

    Args:
        tasks: tabs that record.
        records: shown at once: the first in the first task's tab, or each in a tab of its own where
            there are no tasks.
    """
    with gr.Blocks(title="sooner: see why it is faster", analytics_enabled=False) as page:
        gr.Markdown(WELCOME)
        with gr.Tabs():
            for index, task in enumerate(tasks):
                with gr.Tab(task.name):
                    _tab(page, task, jobs, records[0] if records and not index else None)
            for record in records[: None if not tasks else 0]:
                with gr.Tab(str(record.get("title", record["kind"]))[:40]):
                    gr.HTML(fragment(record))
                    if command := record.get("command"):
                        gr.Code(command, language=None, interactive=False, label=SAME)
    return page


def _tab(page: gr.Blocks, task: Task, jobs: Jobs, first: dict[str, Any] | None) -> None:
    key = gr.BrowserState(None, storage_key=f"sooner-{task.name}", secret="sooner")
    gr.Markdown(task.intro)
    with gr.Accordion("What to run", open=first is None), gr.Row():
        given = [make() for make in task.controls]
    with gr.Row():
        start = gr.Button("Run it", variant="primary")
        stop = gr.Button("Stop")
    message = gr.HTML()
    shown = gr.HTML("" if first is None else fragment(first))
    told = gr.Code("" if first is None else first.get("command", ""), language=None,
                   label=SAME, interactive=False, lines=1, visible=first is not None)  # fmt: skip
    outputs = [shown, message, told, key]

    def run(*values: Any) -> Iterator[Any]:
        try:
            recording, command = task.plan(*values)
        except Exception as error:
            yield gr.skip(), _alert(str(error)), gr.skip(), gr.skip()
            return
        job = jobs.begin(recording)
        job.command = command
        yield from follow(job)

    def follow(job: Job) -> Iterator[Any]:
        for one in job.follow():
            record = one.record
            command = (record or {}).get("command") or one.command
            yield (
                fragment(record) if record is not None else gr.skip(),
                _alert(one.error) if one.error else "",
                gr.update(value=command, visible=bool(command)), one.key,
            )  # fmt: skip

    def again(kept: str | None) -> Iterator[Any]:
        """After a reload: what this browser saw last."""
        if (job := jobs.find(kept)) is not None:
            yield from follow(job)
        else:
            yield gr.skip(), gr.skip(), gr.skip(), gr.skip()

    def halt(kept: str | None) -> None:
        if (job := jobs.find(kept)) is not None:
            job.is_stopped = True

    start.click(run, given, outputs, show_progress="hidden", api_visibility="private")
    stop.click(halt, [key], None, queue=False, api_visibility="private")
    page.load(again, [key], outputs, show_progress="hidden", api_visibility="private")


def _alert(text: str) -> str:
    return f'<p class="sooner" role="alert"><span class="bad">{escape(text)}</span></p>'


def mount_page(app: FastAPI, page: gr.Blocks, path: str = "/") -> FastAPI:
    """Put the page on an application."""
    head = (
        f"<style>{asset('player.css')}</style><script>{asset('player.js')}</script>"
        f"<script>{ALIVE}</script>"
    )
    return gr.mount_gradio_app(
        app, page.queue(default_concurrency_limit=4, api_open=False), path, ssr_mode=False,
        footer_links=[], theme=THEME, css=STYLE, head=head, max_file_size=MAX_FILE,
        show_error=True, enable_monitoring=False, run_history=False,
    )  # fmt: skip
