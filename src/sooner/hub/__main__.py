"""`python -m sooner.hub FOLDER` writes the repositories, a folder each."""

from __future__ import annotations

import sys
from pathlib import Path

from .pages import files

if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m sooner.hub FOLDER")
    for name, text in files().items():
        path = Path(sys.argv[1]) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(path)
