"""Repositories for the model hub: `model.generate(..., custom_generate="org/parallelvlm")`.

`runs` is what their `generate.py` calls; `repositories` says which there are, and `pages` writes
them: `python -m sooner.hub hub`.
"""

from .runs import run

__all__ = ["run"]
