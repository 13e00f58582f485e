"""Pictures of pattern tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from sooner.errors import SoonerError
from sooner.sparse.search.pictures import save


@pytest.mark.parametrize("name", ["a.jpeg", "none/a.png"])
def test_pictures_that_can_not_be_written_are_refused_before_they_are_drawn(
    tmp_path: Path, name: str
) -> None:
    with pytest.raises(SoonerError, match=r"\.png or \.svg|does not exist"):
        save(lambda: pytest.fail("drawn"), tmp_path / name)
