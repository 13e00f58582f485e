"""The models that `sooner serve` answers with, here or in replicas, and what it says of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ..serve.settings import ChatSettings
from . import options
from .demo import has_page
from .display import Display


@dataclass(frozen=True)
class ServedModels:
    """The models of a server as they were asked for.

    Attributes:
        small: name of the miniature, if `model` is one.
        models: how they are loaded; `model` counts.
    """

    model: str
    small: str | None
    adapter: str | None
    models: options.Models
    settings: ChatSettings
    debug: bool = False

    @property
    def is_parallel(self) -> bool:
        """Whether a draft works beside the target, in a process of its own."""
        return self.settings.method == "parallel"

    def load(self) -> Any:
        """Returns the pair.

        Raises:
            SoonerError: as `Models.load`; or it answers no chats.
        """
        from ..serve.model import check_servable, draft_placement, merged_pair
        from ..tasks.loading import pick_device

        models, small = self.models, self.small
        named = replace(models, model=None if small is not None else self.model)
        placement = None
        if self.is_parallel:
            placement = draft_placement(pick_device(models.draft_device or models.device))
        method = self.settings.method if self.is_parallel else None
        pair: Any = named.load(self.debug, placement, small or "video", method, sees=False)
        pair = merged_pair(pair, self.adapter)
        check_servable(pair)
        return pair

    def page(self, pair: Any) -> Any:
        """Returns what puts the page on the application; `None` where there is to be none, or can't
        be.
        """
        if not (self.settings.page and has_page()):
            return None
        from ..demo.served import mount_served

        return partial(mount_served, pair=pair)

    def tell(self, display: Display, url: str, more: str = "") -> None:
        """Say that requests are taken."""
        display.line(f"  {self.model} answers at {url}/v1{more} (Ctrl-C ends)", "bold")
        if not more and self.settings.page and has_page():
            display.line(f"  watch it at {url}/")
        if self.is_parallel:
            display.line("  one request decodes at a time, its draft beside it; others wait")
        if self.small is not None:
            from ..miniatures import MADE_UP, sample_of

            display.line(f"  the bundled {self.small} miniature {MADE_UP}", "yellow")
            name = sample_of(self.small).name
            display.line(f'  requests may name its sample: {{"url": "{name}"}}')


def tell_end(display: Display, grace: float, count: int) -> None:
    """Say that requests are still answered."""
    requests = "1 request" if count == 1 else f"{count} requests"
    display.line(f"  stopping; {requests} under way, at most {grace:g} s (Ctrl-C: at once)")
