"""HSD for batches of any size, whose rows all have the same drafts."""

from __future__ import annotations

from dataclasses import dataclass, fields

from sooner import HSD
from sooner.engine.interface import Drafter
from sooner.engine.loop import Rule
from sooner.methods.context import Context


@dataclass(frozen=True)
class SameDrafts(HSD):
    """`drafts` holds those of one row, and every row gets them."""

    def build(self, context: Context) -> tuple[Drafter, Rule]:
        options = {field.name: getattr(self, field.name) for field in fields(self)}
        options["drafts"] = self.drafts * context.prompts
        return HSD(**options).build(context)
