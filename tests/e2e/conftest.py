from collections.abc import Iterator

import pytest
import torch

from commands import run
from tasks.fixtures import clip, draft_folder, poor_folder, target_folder
from tasks.painters import camera_folder, painter_folder

__all__ = [
    "camera_folder",
    "clip",
    "draft_folder",
    "painter_folder",
    "poor_folder",
    "run",
    "target_folder",
]


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    """The command line sets the process's threads; here other tests share the process."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)
