"""Trained drafters as people publish them: what a folder holds, and the methods that run them."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from ..checkpoints import hub_problem
from ..errors import SoonerError, UnsupportedError
from ..models.checkpoint import tensor_files
from ..registry import choices
from .base import Method, MethodSettings
from .context import Context
from .published import CONFIG, read_config
from .tree_size import MeasuredSize, Size, TreeSize

if TYPE_CHECKING:
    from .draft_module import DraftModule

HEAD = "head"


def known_kinds() -> tuple[type[DraftModule], ...]:
    """Returns the kinds of drafters that can be run, in the order in which they are told apart.
    Their modules are for those who have a drafter."""
    from .assistant.model import AssistantModel
    from .dflash.model import DFlashModel
    from .eagle.eagle3 import Eagle3Head
    from .eagle.head import EagleHead
    from .eagle.mtp import MtpHead

    return (EagleHead, DFlashModel, Eagle3Head, MtpHead, AssistantModel)


REFUSED: Mapping[str, str] = {
    "peagle": "P-EAGLE", "medusa": "Medusa", "hydra": "Hydra", "language_model.mtp.": "P-MTP",
    "mlp_speculator": "an MLP speculator", "mlpspeculator": "an MLP speculator",
}  # fmt: skip
"""Words in configs and names of tensors that tell kinds which are not run."""


def load_drafter(path_or_name: Path | str, **options: Any) -> Method:
    """Returns the method that decodes with a trained drafter; the files tell what it is.

    Args:
        path_or_name: a folder, or a repository of the model hub.
        options: of the method, such as `nodes` or `depth` of `Eagle`.

    Raises:
        SoonerError: no such folder, files that don't fit together, or an unknown option.
        UnsupportedError: a drafter of another kind; says what it would take.
    """
    folder, config, kind = recognise(path_or_name)
    method = choices()[kind.methods[0]].load()
    drafter = kind.load(folder, config)
    try:
        made: Method = method(drafter, **options)
    except TypeError as error:
        raise SoonerError(f"load_drafter: {kind.title} is run by {method.__name__}: {error}") from (
            error
        )
    return made


def method_of(path_or_name: Path | str) -> str:
    """Returns the name of the method that runs a drafter."""
    return recognise(path_or_name)[2].methods[0]


def load_for(method: str, path_or_name: Path | str) -> Any:
    """Returns what `method` takes for its drafter.

    Raises:
        SoonerError: the folder holds a drafter of another method.
        UnsupportedError: one that no method runs.
    """
    folder, config, kind = recognise(path_or_name)
    if method not in kind.methods:
        raise SoonerError(
            f"'{path_or_name}' is {kind.title}, which method '{kind.methods[0]}' runs, not "
            f"'{method}'"
        )
    return kind.load(folder, config)


def find_folder(path_or_name: Path | str) -> Path:
    """The folder of a drafter, fetched from the model hub where it is none here.

    What `sooner train draft -o FOLDER` wrote may be named by that folder, in which the drafter is
    `head`. `ORG/NAME/FOLDER` is a folder of a repository, as in `tencent/HunyuanOCR/dflash`.

    Raises:
        SoonerError: no such folder, and no such repository.
    """
    folder = Path(path_or_name)
    if not (folder / CONFIG).is_file() and (folder / HEAD / CONFIG).is_file():
        return folder / HEAD
    name, parts = str(path_or_name), str(path_or_name).split("/")
    if folder.exists() or len(parts) not in (2, 3) or name.startswith((".", "/", "~")):
        return folder
    from huggingface_hub import snapshot_download, try_to_load_from_cache

    repository, inside = "/".join(parts[:2]), "".join(f"{part}/" for part in parts[2:])
    patterns = [f"{inside}*.{ending}" for ending in ("json", "safetensors", "bin")]
    try:
        is_here = isinstance(try_to_load_from_cache(repository, inside + CONFIG), str)
        if not is_here and (reason := hub_problem()) is not None:  # nor fetched before
            raise SoonerError(f"drafter '{name}' is no folder here, and {reason}")
        return Path(snapshot_download(repository, allow_patterns=patterns)) / inside
    except SoonerError:
        raise
    except Exception as error:  # a dozen kinds, of HTTP, of names, of files
        raise SoonerError(
            f"drafter '{name}' is no folder here, and the hub gave no repository for it "
            f"({type(error).__name__}); check the name, or download it"
        ) from error


def recognise(path_or_name: Path | str) -> tuple[Path, dict[str, Any], type[DraftModule]]:
    """Returns a drafter's folder, its config.json, and what it is.

    Raises:
        SoonerError: no such folder.
        UnsupportedError: a drafter that no method runs.
    """
    folder = find_folder(path_or_name)
    config = read_config(folder)
    names, kinds = set(tensor_files(folder)), known_kinds()
    known = ", ".join(kind.title for kind in kinds)
    options = config.get("dflash_config") or {}
    values = [config.get(name) for name in ("speculators_model_type", "model_type")]
    values += [*(config.get("architectures") or []), config.get("projector_type")]
    text = " ".join(map(str, [*values, options.get("projector_type"), *config, *options, *names]))
    if refused := next((kind for word, kind in REFUSED.items() if word in text.lower()), None):
        known += "; docs/drafters.md says what others would take"
        raise UnsupportedError(f"'{folder}' is {refused}, which is not run; known: {known}")
    for kind in kinds:
        if kind.matches(config, names):
            return folder, config, kind
    raise UnsupportedError(
        f"'{folder / CONFIG}' is of model_type {config.get('model_type')!r}, "
        f"no drafter that is known; known: {known}"
    )


@dataclass(frozen=True)
class TrainedMethod(Method):
    """A method with a trained drafter, which stays as it is: a target on another device or in
    another dtype is drafted for by a copy.

    Attributes:
        memory: of each target's model, the drafter where the target is and in its dtype, and what
            measures the size of drafts that pays.
    """

    memory: weakref.WeakKeyDictionary[Any, tuple[Any, TreeSize]] = field(
        default_factory=weakref.WeakKeyDictionary, init=False, repr=False, compare=False
    )
    name: ClassVar[str] = ""
    trained: ClassVar[str] = "drafter"
    """The field that holds the drafter."""
    size: ClassVar[str] = "num_draft_tokens"
    """The field that is a number, or `"auto"`."""
    needs_whole_target: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        drafter = getattr(self, self.trained)
        if isinstance(drafter, str | Path):
            object.__setattr__(self, self.trained, load_for(self.name, drafter))

    @classmethod
    def from_settings(cls, settings: MethodSettings) -> Self:
        options: Any = {cls.trained: settings.head, cls.size: settings.num_draft_tokens}
        return cls(**options)

    def slot_bytes(self) -> int:
        return int(getattr(self, self.trained).slot_bytes)

    def largest_block(self) -> int:
        return 1 + self.largest().nodes

    def largest(self) -> Size:
        """Returns the largest draft that may be made."""
        raise NotImplementedError

    def measured(self) -> MeasuredSize:
        """Returns what chooses sizes by what they give and cost."""
        return MeasuredSize(self.largest())

    def placed(self, context: Context) -> tuple[Any, TreeSize]:
        """Returns the drafter where a run's target is, and what chooses the sizes of drafts.

        Raises:
            SoonerError: a target that the drafter was not trained for.
            UnsupportedError: guidance.
        """
        if context.guidance != 1.0:
            raise UnsupportedError(
                f"{type(self).__name__}: guidance {context.guidance} can't be honoured: the "
                f"{self.trained} knows one prompt a row; use guidance=1, or another method"
            )
        module, target = getattr(self, self.trained), context.target
        if target.model not in self.memory:
            module.check(target)
            is_auto = getattr(self, self.size) == "auto"
            sizing = self.measured() if is_auto else TreeSize(self.largest())
            self.memory[target.model] = module.placed(target), sizing
        drafter, sizing = self.memory[target.model]
        if (drafter.device, drafter.dtype) != (target.device, target.dtype):
            drafter = module.placed(target)
            self.memory[target.model] = drafter, sizing
        sizing.begin(context.stats.note)
        return drafter, sizing
