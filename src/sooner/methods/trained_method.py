"""What methods share whose drafter was trained for its target: where it runs, what was measured."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from ..errors import UnsupportedError
from .base import Method
from .context import Context
from .trained import load_for
from .tree_size import MeasuredSize


@dataclass
class Placed:
    """What a method keeps of a target that its drafter was checked against.

    Attributes:
        drafter: where the target is, and in its dtype.
        measured: the size of drafts that pays, where it is found out.
    """

    drafter: Any
    measured: MeasuredSize | None = None

    def sizing(self, make: Callable[[], MeasuredSize], context: Context) -> MeasuredSize:
        """Returns what was measured so far, made if nothing was; its notes go to the run."""
        if self.measured is None:
            self.measured = make()
        self.measured.controller.begin(context.stats.note)
        return self.measured


@dataclass(frozen=True)
class TrainedMethod(Method):
    """A method with a trained drafter, which stays as it is: a target on another device or in
    another dtype is drafted for by a copy.

    Attributes:
        memory: of each target's model, where the drafter runs for it.
    """

    memory: weakref.WeakKeyDictionary[Any, Placed] = field(
        default_factory=weakref.WeakKeyDictionary, init=False, repr=False, compare=False
    )
    name: ClassVar[str] = ""
    trained: ClassVar[str] = "drafter"
    """The field that holds the drafter."""

    def __post_init__(self) -> None:
        named = getattr(self, self.trained)
        if isinstance(named, str | Path):
            object.__setattr__(self, self.trained, load_for(self.name, named))

    @property
    def needs_whole_target(self) -> bool:
        return True

    def placed(self, context: Context) -> Placed:
        """Returns the drafter where a run's target is, and what was measured there.

        Raises:
            SoonerError: a target that the drafter was not trained for.
            UnsupportedError: guidance.
        """
        if context.guidance != 1.0:
            raise UnsupportedError(
                f"{type(self).__name__}: guidance {context.guidance} can't be honoured: the "
                f"{self.trained} knows one prompt a row; use guidance=1, or another method"
            )
        module, target = getattr(self, self.trained), context.target
        placed = self.memory.get(target.model)
        if placed is None:
            module.check(target)
            placed = self.memory[target.model] = Placed(self.copy_at(target))
        elif (placed.drafter.device, placed.drafter.dtype) != (target.device, target.dtype):
            placed.drafter = self.copy_at(target)
        return placed

    def copy_at(self, target: Any) -> Any:
        """Returns the drafter itself where it lies with a target, else a copy that does."""
        module = getattr(self, self.trained)
        if (module.device, module.dtype) == (target.device, target.dtype):
            return module
        return copy.deepcopy(module).to(target.device, target.dtype)
