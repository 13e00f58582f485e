"""Options that the subcommands of `sooner act` share, and the policy that they ask for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import unknown
from . import options
from .display import Display

Policy = Annotated[
    str | None,
    typer.Option(
        "--model", metavar="ID_OR_PATH", help="An OpenVLA policy; without it, the miniature."
    ),
]
Head = Annotated[
    str | None,
    typer.Option(
        metavar="FOLDER", help="Draft head, trained for this policy by `sooner train draft`."
    ),
]
Method = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="plain, strict (drafted, exact), relaxed (drafted, near), or auto, which measures; "
        "by default auto where there is a head.",
    ),
]
Tolerance = Annotated[
    str | None,
    typer.Option(
        metavar="R",
        help="How far relaxed may go: bins (9), bins of each dimension (9,9,9,0), or lengths "
        "(5mm,5mm,5mm,0). One number leaves the gripper exact.",
    ),
]
UnnormKey = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Data set of the robot, where the policy knows several."),
]
Json = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write all figures.")]


@dataclass(frozen=True)
class Wanted:
    """A policy as it was asked for; see the options."""

    model: str | None
    head: str | None
    method: str | None
    tolerance: str | None
    unnorm_key: str | None
    device: str
    dtype: str
    threads: int | None

    def foreign(self, *given: Path | str) -> list[str]:
        """A word about pictures, instructions and environments that the miniature never saw."""
        from .. import miniatures
        from ..tasks.act.loading import MINIATURE

        return miniatures.find(MINIATURE).foreign(*given) if self.model is None else []

    def load(self, display: Display, debug: bool) -> Any:
        """The policy, and its threads, see `Threads`.

        Raises:
            SoonerError: as `sooner.tasks.act.loading.load`, an unknown method, fewer than one
                thread.
        """
        from ..methods.threads import Threads

        if debug:
            options.log_decisions()
        else:
            options.hush()
        options.check_threads(self.threads)
        with display.job():
            display.stage("load")
            policy = self._load()
        if self.tolerance is not None and policy.is_strict:
            display.line(
                f"  {self.tolerance} is less than a bin anywhere: actions are exact", "dim"
            )
        Threads.plan(self.threads, is_miniature=self.model is None).apply()
        return policy

    def _load(self) -> Any:
        from ..tasks.act.allowance import Allowance
        from ..tasks.act.loading import load
        from ..tasks.act.policy import METHODS

        if self.method is not None and self.method not in METHODS:
            raise unknown("method", self.method, METHODS)  # models load slowly
        allowance = None if self.tolerance is None else Allowance.parse(self.tolerance)
        policy = load(
            self.model,
            self.head,
            device=self.device,
            dtype=self.dtype,
            allowance=allowance,
            unnorm_key=self.unnorm_key,
        )
        if self.method is not None:
            policy.check_method(self.method)
        return policy
