"""The methods that there are: names, what each drafts with, and where its class is.

Command line, `sooner.<Class>`, `sooner bench caption` and docs/methods.md (by
`tools/methods_page.py`) follow from this table, which imports no method: `sooner --help` and
`import sooner` load no torch.

Methods of other distributions are found by entry points of the group `sooner.methods`, such as
`repeat = "sooner_repeat:Repeat"`; their modules are imported when they are used.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal

from .errors import SoonerError

DraftModel = Literal["none", "words", "pixels", "head"]
"""What a method drafts with: nothing that is loaded, a draft model that reads only, one that looks
at pixels if it can, or a head that was trained for the target."""

GROUP = "sooner.methods"
"""Entry points of other distributions, each a class."""


@dataclass(frozen=True)
class Entry:
    """What the registry knows of one method.

    Attributes:
        name: its name on the command line, in records and in benchmarks.
        type_name, module: its class.
        drafts_with: what it needs to draft; `None`: the class says it.
        summary: what it drafts, in a few words.
        is_choice: it can be built from a command's settings, so that `--method` knows it.
    """

    name: str
    type_name: str
    module: str
    drafts_with: DraftModel | None
    summary: str
    is_choice: bool = True

    @property
    def draft_model(self) -> DraftModel:
        """What it drafts with; imports a class of another distribution."""
        known: DraftModel = self.drafts_with or self.load().draft_model
        return known

    @property
    def needs_draft(self) -> bool:
        """Whether it needs a draft model, which may see pixels or not."""
        return self.draft_model in ("words", "pixels")

    def load(self) -> Any:
        """Returns the class; imports its module.

        Raises:
            SoonerError: an entry point of another distribution names no class.
        """
        try:
            return getattr(importlib.import_module(self.module), self.type_name)
        except (ImportError, AttributeError) as error:
            raise SoonerError(
                f"method '{self.name}' is '{self.module}:{self.type_name}', which is no class that "
                f"can be imported ({error})"
            ) from error


METHODS = (
    Entry("assistant", "Assistant", "sooner.methods.assistant.method", "head",
          "a chain of an assistant that reads the target's keys and values"),
    Entry("ddtree", "DDTree", "sooner.methods.dflash.method", "head",
          "a tree of the marginals of a drafter's one forward"),
    Entry("dflash", "DFlash", "sooner.methods.dflash.method", "head",
          "a block that a trained drafter denoises in one forward"),
    Entry("eagle", "Eagle", "sooner.methods.eagle.method", "head",
          "a tree of a trained head on the target's states"),
    Entry("hsd", "HSD", "sooner.methods.aligned.method", "none",
          "a tree of texts made beforehand, such as OCR's", False),
    Entry("jacobi", "CoupledJacobi", "sooner.methods.jacobi.method", "none",
          "a window of the target's last iteration, with coupled draws", False),
    Entry("onsd", "OnSD", "sooner.methods.speculative", "words",
          "a chain of a draft model that gets the words alone"),
    Entry("parallel", "ParallelVLM", "sooner.methods.parallel.method", "pixels",
          "a chain of a draft model beside the target, visual tokens pruned"),
    Entry("plain", "Autoregressive", "sooner.methods.base", "none",
          "nothing: one token a target forward"),
    Entry("prompt-lookup", "PromptLookup", "sooner.methods.prompt_lookup", "none",
          "what followed the last n tokens earlier in the text"),
    Entry("relaxed", "Relaxed", "sooner.methods.tolerance", "none",
          "what another method drafts; accepts numbers near the target's", False),
    Entry("sd-tree", "SDTree", "sooner.methods.sd_tree", "pixels",
          "a static tree of a draft model"),
    Entry("speculative", "Speculative", "sooner.methods.speculative", "pixels",
          "a chain of a draft model"),
)  # fmt: skip


@cache
def methods() -> dict[str, Entry]:
    """Returns every method by its name, in alphabetical order.

    Raises:
        SoonerError: a name that two methods have.
    """
    entries: dict[str, Entry] = {}
    for entry in (*METHODS, *map(_installed, entry_points(group=GROUP))):
        if entry.name in entries:
            raise SoonerError(
                f"method '{entry.name}' of '{entry.module}' has the name of another; rename it"
            )
        entries[entry.name] = entry
    return dict(sorted(entries.items()))


def _installed(point: EntryPoint) -> Entry:
    owner = point.dist.name if point.dist is not None else point.module
    return Entry(point.name, point.attr, point.module, None, f"of {owner}")


def choices() -> dict[str, Entry]:
    """Returns the methods that `--method` knows."""
    return {name: entry for name, entry in methods().items() if entry.is_choice}


def method_types() -> dict[str, Entry]:
    """Returns every method by the name of its class."""
    return {entry.type_name: entry for entry in methods().values()}
