"""The page: a tab a task, with its controls, a recording and the command that does the same; and
the application that serves it, with what it may load."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from contextlib import asynccontextmanager
from html import escape
from queue import SimpleQueue
from typing import Any

import gradio as gr
from fastapi import FastAPI

from ..errors import SoonerError, error_line
from ..serve.http import Guard
from ..serve.settings import ServerSettings
from .export import asset, fragment
from .records import Record
from .round_records import Live, StoppedError
from .tabs import Recording, Task

logger = logging.getLogger("sooner.demo")

THEME = gr.themes.Default(font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"])
"""Without fonts of other hosts; its colours are in `page.css`."""
HEADERS = {
    # Gradio needs inline scripts; nothing may be asked of another host.
    "Content-Security-Policy": "default-src 'self'; script-src 'self' 'unsafe-inline' blob: "
    "'unsafe-eval'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; media-src 'self' "
    "data: blob:; font-src 'self' data:; connect-src 'self' data: blob:; worker-src 'self' blob:; "
    "frame-ancestors 'self'; form-action 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
}
"""What browsers may do with the page."""
WELCOME = (
    "# sooner\n**Faster decoding, to watch.** A quick helper guesses what a big model is about to "
    "say, and the big model checks many guesses at once: what it would have said comes out sooner."
)


class Recorder:
    """Makes all recordings of a server; they take turns, since they are timed."""

    def __init__(self) -> None:
        self._turn = threading.Lock()

    def follow(self, recording: Recording, stopped: threading.Event) -> Iterator[Record]:
        """Yields the record as far as it is known, whenever more of it is; the last is whole.

        Args:
            stopped: ends it, if set.

        Raises:
            SoonerError: why there is no whole record, in words.
        """
        updates: SimpleQueue[Record | SoonerError | None] = SimpleQueue()

        def show(record: Record) -> None:
            if updates.empty():  # else the page has not shown the one before
                updates.put(record)

        def work() -> None:
            if not self._turn.acquire(blocking=False):
                show({"kind": "race", "live": "Another recording is under way; yours is next ..."})
                self._turn.acquire()
            try:
                if stopped.is_set():
                    raise StoppedError("stopped before it began; run it again")
                updates.put(recording(Live(show, stopped.is_set)))
            except SoonerError as error:
                updates.put(error)
            except Exception as error:
                logger.exception("a recording failed")
                text = f"{error_line(error)} (unexpected; the server's log tells more)"
                updates.put(SoonerError(text))
            finally:
                self._turn.release()
                updates.put(None)

        threading.Thread(target=work, daemon=True).start()
        key = uuid.uuid4().hex  # by which the player knows that it is the same recording
        while (update := updates.get()) is not None:
            if isinstance(update, SoonerError):
                raise update
            yield {**update, "key": key}


def build_page(tasks: Sequence[Task], recorder: Recorder, first: Record | None = None) -> gr.Blocks:
    """Returns the page.

    Args:
        tasks: tabs that record.
        first: a record that the first tab shows at once.
    """
    with gr.Blocks(title="sooner: see why it is faster", analytics_enabled=False) as page:
        gr.Markdown(WELCOME)
        with gr.Tabs():
            for index, task in enumerate(tasks):
                with gr.Tab(task.name) as tab:
                    _tab(tab, task, recorder, None if index else first)
    return page


def _tab(tab: gr.Tab, task: Task, recorder: Recorder, first: Record | None) -> None:
    gr.Markdown(task.intro)
    is_open = first is None and not task.opens
    with gr.Accordion("What to run", open=is_open), gr.Row():
        inputs = [make() for make in task.controls]
    with gr.Row():
        start = gr.Button("Run it", variant="primary")
        stop = gr.Button("Stop")
    message = gr.HTML(padding=False)
    panel = gr.HTML("" if first is None else fragment(first), padding=False)
    command_box = gr.Code("" if first is None else first.get("command", ""), language=None,
                   label="The same on your machine", interactive=False, lines=1, wrap_lines=True,
                   visible=first is not None)  # fmt: skip
    stops: dict[str | None, threading.Event] = {}  # of each visitor's newest run
    opening: list[Any] = []  # what the tab shows first, once that was recorded

    def run(request: gr.Request, *values: Any) -> Generator[Any, None, Any]:
        visitor, stopped = request.session_hash, threading.Event()
        if visitor in stops:
            stops[visitor].set()  # this run takes the place of one that still goes on
        stops[visitor] = stopped
        update = None
        try:
            for record in recorder.follow(task.plan(*values), stopped):
                command = record.get("command")
                update = fragment(record), "", gr.update(value=command, visible=bool(command))
                if stops[visitor] is stopped:
                    yield update
        except Exception as error:
            if stops[visitor] is stopped:
                text = f'<span class="bad">{escape(str(error))}</span>'
                yield gr.skip(), f'<p class="sooner" role="alert">{text}</p>', gr.skip()
            return None
        return update

    def open_tab(request: gr.Request, *values: Any) -> Iterator[Any]:
        """Shows what the tab opens with, unless the visitor has run something in it."""
        if request.session_hash in stops:
            yield gr.skip(), gr.skip(), gr.skip()
        elif opening:
            stops[request.session_hash] = threading.Event()
            yield opening[0]
        else:
            whole = yield from run(request, *values)
            opening.extend([] if whole is None else [whole])

    def halt(request: gr.Request) -> None:
        if (stopped := stops.get(request.session_hash)) is not None:
            stopped.set()

    outputs = [panel, message, command_box]
    quiet: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
    start.click(run, inputs, outputs, **quiet)
    if task.opens:
        tab.select(open_tab, inputs, outputs, **quiet)
    stop.click(halt, None, None, queue=False, api_visibility="private")


def create_app(
    settings: ServerSettings, page: gr.Blocks, on_ready: Callable[[], None] = lambda: None
) -> FastAPI:
    """Returns the application of `sooner demo`: a page at `/`.

    Args:
        on_ready: called once the server listens for signals.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        on_ready()
        yield

    app = FastAPI(
        title="sooner demo", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None
    )

    @app.get("/health")
    async def health() -> dict[str, str]:
        """Asked by the page, which says so if nobody answers."""
        return {"status": "ready"}

    head = (
        f"<style>{asset('player.css')}{asset('page.css')}</style>"
        f"<script>{asset('player.js')}</script><script>{asset('page.js')}</script>"
    )
    gr.mount_gradio_app(
        app, page.queue(default_concurrency_limit=4, api_open=False), "/", ssr_mode=False,
        footer_links=[], theme=THEME, head=head, max_file_size="256mb",
        show_error=True, enable_monitoring=False, run_history=False,
    )  # fmt: skip
    app.add_middleware(Guard, settings=settings, page_headers=HEADERS)
    return app
