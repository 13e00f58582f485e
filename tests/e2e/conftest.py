from tasks.fixtures import clip, draft_folder, poor_folder, target_folder

__all__ = ["clip", "draft_folder", "poor_folder", "target_folder"]
