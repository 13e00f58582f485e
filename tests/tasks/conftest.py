from tasks.fixtures import clip, draft_folder, poor_folder, target_folder
from tasks.painters import camera_folder, painter_folder

__all__ = [
    "camera_folder",
    "clip",
    "draft_folder",
    "painter_folder",
    "poor_folder",
    "target_folder",
]
