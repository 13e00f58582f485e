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
        summary: what it drafts, in a few words.
        drafts_with: what it needs for that; `None`: the class says it.
        type_name, module: its class.
        is_choice: it can be built from a command's settings, so that `--method` knows it.
    """

    name: str
    summary: str
    drafts_with: DraftModel | None
    type_name: str
    module: str
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


def _entry(
    name: str, type_name: str, module: str, drafts_with: DraftModel, summary: str,
    is_choice: bool = True,
) -> Entry:  # fmt: skip
    return Entry(name, summary, drafts_with, type_name, f"{GROUP}.{module}", is_choice)


METHODS = (
    _entry("assistant", "Assistant", "assistant.method", "head",
           "a chain of an assistant that reads the target's keys and values"),
    _entry("ddtree", "DDTree", "dflash.method", "head",
           "a tree of the marginals of a drafter's one forward"),
    _entry("dflash", "DFlash", "dflash.method", "head",
           "a block that a trained drafter denoises in one forward"),
    _entry("eagle", "Eagle", "eagle.method", "head",
           "a tree of a trained head on the target's states"),
    _entry("hsd", "HSD", "aligned.method", "none",
           "a tree of texts made beforehand, such as OCR's", False),
    _entry("jacobi", "CoupledJacobi", "jacobi.method", "none",
           "a window of the target's last iteration, with coupled draws", False),
    _entry("onsd", "OnSD", "speculative", "words",
           "a chain of a draft model that gets the words alone"),
    _entry("parallel", "ParallelVLM", "parallel.method", "pixels",
           "a chain of a draft model beside the target, visual tokens pruned"),
    _entry("plain", "Autoregressive", "base", "none",
           "nothing: one token a target forward"),
    _entry("prompt-lookup", "PromptLookup", "prompt_lookup", "none",
           "what followed the last n tokens earlier in the text"),
    _entry("relaxed", "Relaxed", "tolerance", "none",
           "what another method drafts; accepts numbers near the target's", False),
    _entry("sd-tree", "SDTree", "sd_tree", "pixels",
           "a static tree of a draft model"),
    _entry("sparse-to-dense", "SparseToDense", "sparse_to_dense", "none",
           "a chain of the target on a short copy of its cache"),
    _entry("speculative", "Speculative", "speculative", "pixels",
           "a chain of a draft model"),
    _entry("specvlm", "SpecVLM", "specvlm", "pixels",
           "a static tree of a draft model, visual tokens pruned"),
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
    return Entry(point.name, f"of {owner}", None, point.attr, point.module)


def choices() -> dict[str, Entry]:
    """Returns the methods that `--method` knows."""
    return {name: entry for name, entry in methods().items() if entry.is_choice}


def method_types() -> dict[str, Entry]:
    """Returns every method by the name of its class."""
    return {entry.type_name: entry for entry in methods().values()}
