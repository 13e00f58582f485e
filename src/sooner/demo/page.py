"""The page: a tab a task, with its controls, a recording and the command that does the same."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

import gradio as gr
from fastapi import FastAPI

from .export import asset, fragment
from .recorder import Recorder
from .tabs import Task

MAX_FILE = "256mb"
"""The largest size of an upload."""
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
    "# sooner\n**Faster decoding, to watch.** A quick helper guesses what a big model is about to "
    "say, and the big model checks many guesses at once: what it would have said comes out sooner."
)


def build_page(
    tasks: Sequence[Task], recorder: Recorder, first: dict[str, Any] | None = None
) -> gr.Blocks:
    """Returns the page.

    Args:
        tasks: tabs that record.
        first: a record that the first tab shows at once.
    """
    with gr.Blocks(title="sooner: see why it is faster", analytics_enabled=False) as page:
        gr.Markdown(WELCOME)
        with gr.Tabs():
            for index, task in enumerate(tasks):
                with gr.Tab(task.name):
                    _tab(task, recorder, None if index else first)
    return page


def _tab(task: Task, recorder: Recorder, first: dict[str, Any] | None) -> None:
    gr.Markdown(task.intro)
    with gr.Accordion("What to run", open=first is None), gr.Row():
        inputs = [make() for make in task.controls]
    with gr.Row():
        start = gr.Button("Run it", variant="primary")
        stop = gr.Button("Stop")
    message = gr.HTML(padding=False)
    panel = gr.HTML("" if first is None else fragment(first), padding=False)
    command_box = gr.Code("" if first is None else first.get("command", ""), language=None,
                   label=SAME, interactive=False, lines=1, wrap_lines=True,
                   visible=first is not None)  # fmt: skip
    stops: dict[str | None, threading.Event] = {}

    def run(request: gr.Request, *values: Any) -> Iterator[Any]:
        stopped = stops[request.session_hash] = threading.Event()
        try:
            recording, command = task.plan(*values)
            for record in recorder.follow(recording, stopped):
                command = record.get("command") or command
                box = gr.update(value=command, visible=bool(command))
                yield fragment(record), "", box
        except Exception as error:
            text = f'<span class="bad">{escape(str(error))}</span>'
            yield gr.skip(), f'<p class="sooner" role="alert">{text}</p>', gr.skip()

    def halt(request: gr.Request) -> None:
        if (stopped := stops.get(request.session_hash)) is not None:
            stopped.set()

    outputs = [panel, message, command_box]
    start.click(run, inputs, outputs, show_progress="hidden", api_visibility="private")
    stop.click(halt, None, None, queue=False, api_visibility="private")


def mount_page(app: FastAPI, page: gr.Blocks, path: str = "/") -> FastAPI:
    """Put the page on an application."""
    head = (
        f"<style>{asset('player.css')}{asset('page.css')}</style>"
        f"<script>{asset('player.js')}</script><script>{asset('page.js')}</script>"
    )
    return gr.mount_gradio_app(
        app, page.queue(default_concurrency_limit=4, api_open=False), path, ssr_mode=False,
        footer_links=[], theme=THEME, head=head, max_file_size=MAX_FILE,
        show_error=True, enable_monitoring=False, run_history=False,
    )  # fmt: skip
