"""Which figure of ours is held against which row, by paper."""

from __future__ import annotations

from . import hsd, mminference, parallelvlm, scd, spec_vla
from .kinds import Links

LINKS: dict[str, Links] = {
    "parallelvlm": parallelvlm.LINKS,
    "hsd": hsd.LINKS,
    "mminference": mminference.LINKS,
    "spec-vla": spec_vla.LINKS,
    "scd": scd.LINKS,
}
"""By the name of the paper's file."""
