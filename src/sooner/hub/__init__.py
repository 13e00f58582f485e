"""Repositories for the model hub: `model.generate(..., custom_generate="org/parallelvlm")`.

`runs` is what their `generate.py` calls; `repositories` says which there are. `tools/hub_pages.py`
of the source tree writes them.
"""

from .runs import run

__all__ = ["run"]
