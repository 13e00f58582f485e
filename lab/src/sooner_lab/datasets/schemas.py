"""How each benchmark is laid out: its tables, its videos, and which column says what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sooner.errors import SoonerError, unknown

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Schema:
    """One benchmark.

    Attributes:
        name: as users write it; case, `-` and `_` do not matter.
        hub: the dataset's id on the hub.
        tables: patterns of table files, tried in order; all files of the first that matches are
            read.
        videos: patterns of the files that videos or archives of them come in.
        columns: columns that may name the video, in order.
        seconds: column with the video's length in seconds, where there is one.
        at_least: values of a column that promise a least length: `{column: {value: seconds}}`.
        folders: for a table named by its stem, the folder in which its videos lie.
        prefix: of the files' names, which the table leaves out.
    """

    name: str
    hub: str
    tables: tuple[str, ...]
    videos: tuple[str, ...]
    columns: tuple[str, ...]
    seconds: str | None = None
    min_values: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    folders: Mapping[str, str] = field(default_factory=dict)
    prefix: str = ""

    def video(self, record: Record, table: Path) -> str:
        """The video's path as far as the record tells it, `/` between folders.

        Raises:
            SoonerError: no known column names a video.
        """
        for column in self.columns:
            if record.get(column):
                folder = self.folders.get(table.stem, "")
                bare = str(record[column]).removeprefix(self.prefix)
                return f"{folder}/{self.prefix}{bare}".removeprefix("/")
        raise SoonerError(
            f"{self.name}: '{table}' has a record with the columns {', '.join(sorted(record))}, "
            f"but a video is named by {' or '.join(self.columns)}; is it another dataset?"
        )

    def known_seconds(self, record: Record) -> float | None:
        """The video's length, or a lower bound of it, if the table tells."""
        if self.seconds is not None and isinstance(record.get(self.seconds), int | float):
            return float(record[self.seconds])
        for column, values in self.min_values.items():
            if record.get(column) in values:
                return values[record[column]]
        return None


MVBENCH_FOLDERS = {
    "action_antonym": "ssv2_video",
    "action_count": "perception/videos",
    "action_localization": "sta/sta_video",
    "action_prediction": "star/Charades_v1_480",
    "action_sequence": "star/Charades_v1_480",
    "character_order": "perception/videos",
    "counterfactual_inference": "clevrer/video_validation",
    "egocentric_navigation": "vlnqa",
    "episodic_reasoning": "tvqa/frames_fps3_hq",
    "fine_grained_action": "Moments_in_Time_Raw/videos",
    "fine_grained_pose": "nturgbd",
    "moving_attribute": "clevrer/video_validation",
    "moving_count": "clevrer/video_validation",
    "moving_direction": "clevrer/video_validation",
    "object_existence": "clevrer/video_validation",
    "object_interaction": "star/Charades_v1_480",
    "object_shuffle": "perception/videos",
    "scene_transition": "scene_qa/video",
    "state_change": "perception/videos",
    "unexpected_action": "FunQA_test/test",
}
"""Folder of each MVBench task; a hint only, since revisions of the repository differ."""

_ALL = (
    Schema(
        name="VideoDetailCaption",
        hub="lmms-lab/VideoDetailCaption",
        tables=("data/test-*.parquet", "*.parquet"),
        videos=("*.zip",),
        columns=("video_name",),
    ),
    Schema(
        name="VideoMME",
        hub="lmms-lab/Video-MME",
        tables=("videomme/test-*.parquet", "*.parquet"),
        videos=("videos_chunked_*.zip",),
        columns=("videoID",),
        # Short ones have up to two minutes, so only those must be looked into.
        min_values={"duration": {"medium": 240.0, "long": 1800.0}},
    ),
    Schema(
        name="MVBench",
        hub="OpenGVLab/MVBench",
        tables=("json/*.json",),
        videos=("video/*.zip",),
        columns=("video",),
        folders=MVBENCH_FOLDERS,
    ),
    Schema(
        name="MLVU",
        hub="MLVU/MVLU",
        tables=("json/*.json", "mlvu/test-*.parquet", "*.parquet"),
        videos=("*.mp4", "*.zip"),
        columns=("video", "video_name"),
        seconds="duration",
    ),
    Schema(
        name="LongVideoBench",
        hub="longvideobench/LongVideoBench",
        tables=("lvb_val.json", "validation-*.parquet"),
        videos=("videos.tar.part.*",),
        columns=("video_path",),
        seconds="duration",
    ),
    Schema(
        name="ActivityNet-QA",
        hub="lmms-lab/ActivityNetQA",
        tables=("data/test-*.parquet", "*.parquet", "test_q.json"),
        videos=("*.zip",),
        columns=("video_name",),
        prefix="v_",
    ),
    Schema(
        name="EgoSchema",
        hub="lmms-lab/egoschema",
        # The subset of 500 has answers; the whole set's are kept by its server.
        tables=("Subset/test-*.parquet", "MC/test-*.parquet", "*.parquet"),
        videos=("videos_chunked_*.zip",),
        columns=("video_idx",),
    ),
    Schema(
        name="NExT-QA",
        hub="lmms-lab/NExTQA",
        tables=("MC/test-*.parquet", "*.parquet", "mc/test.csv", "test.csv"),
        videos=("*.zip",),
        columns=("video",),
    ),
    Schema(
        name="PerceptionTest",
        hub="lmms-lab/PerceptionTest_Val",
        tables=("mc_question_val/validation-*.parquet", "*.parquet", "mc_question_valid*.json"),
        videos=("*.zip",),
        columns=("video_name",),
    ),
)
SCHEMAS: dict[str, Schema] = {schema.name: schema for schema in _ALL}

_ALIASES = {
    "mvlu": "mlvu",  # so in the paper, and in MLVU's own repository
    "videodc": "videodetailcaption",
    "actnetqa": "activitynetqa",
}
"""Other names that papers use."""


def find_schema(name: str) -> Schema:
    """The schema of a benchmark.

    Raises:
        SoonerError: an unknown name; says which one is near.
    """
    plain = _plain(name)
    plain = _ALIASES.get(plain, plain)
    for schema in SCHEMAS.values():
        if _plain(schema.name) == plain:
            return schema
    near = {_plain(known): known for known in SCHEMAS}
    raise unknown("dataset", near.get(plain, name), SCHEMAS)


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")
