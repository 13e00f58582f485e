"""Encoded videos of known length, and the `datasets` package or a stand-in."""

from __future__ import annotations

import pytest

from data_sets.files import fake_datasets
from tasks import videos


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> dict[int, bytes]:
    """Videos of 1 to 4 seconds, encoded once."""
    folder = tmp_path_factory.mktemp("clips")
    return {
        seconds: videos.write(
            folder / f"{seconds}.mp4", frames=4 * seconds, rate=4, size=(32, 32)
        ).read_bytes()
        for seconds in (1, 2, 3, 4)
    }


@pytest.fixture(params=["real", "stand-in"])
def real(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Once with the package itself, where it is installed, and once with a stand-in."""
    if request.param == "stand-in":
        fake_datasets(monkeypatch)
    else:
        pytest.importorskip("datasets")
    return request.param == "real"
