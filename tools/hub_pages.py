"""Writes the repositories for the model hub, from the methods' own fields and docstrings.

usage:
    python tools/hub_pages.py        # writes hub/, a folder each
"""

from __future__ import annotations

import inspect
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from sooner import __version__, drawing, methods
from sooner.checks import described
from sooner.registry import method_types
from sooner.sparse.prefill import MMInference

LAST = "0.2.0"
"""Oldest version of sooner that runs what is written here."""

Drafts = Literal["none", "model", "head", "texts"]
"""What a repository drafts with: nothing that is given, `assistant_model` (a loaded model), a head
that was trained for the target (itself, a folder or a repository), or `drafts`, texts."""

CODE = '''"""{title}.

`model.generate(**inputs, custom_generate="ORG/{name}", trust_remote_code=True)`;
the README says what the options mean.
"""

import sooner


def generate(
    model,
{signature}    **arguments,
):
    """{summary}"""
{body}'''

BODY = """{check}    method = sooner.{type_name}(
{values}    )
    return model.generate(**arguments{more}, custom_generate=method)
"""

CHECK = """    if {name} is None:
        raise sooner.SoonerError("{type_name}: give {name}, {what}")
"""

REFUSAL = """    if arguments.pop("assistant_model", None) is not None:
        raise sooner.SoonerError("{type_name} drafts without a model; leave assistant_model out")
"""

GIVEN = {
    "none": {},
    "model": {"assistant_model": "a small model that is loaded"},
    "head": {"assistant_model": "a trained head or its folder"},
    "texts": {"drafts": "a list of texts for each prompt"},
}
"""Arguments without which nothing can be drafted, and what they are."""

PREFILL = """{check}    options = {{
{options}    }}
    sparse = sooner.MMInference if table is None else partial(sooner.MMInference.load, table)
    with sparse(**options)(model):
        return model.generate(**arguments, custom_generate=sooner.Autoregressive())
"""

ACT = """{check}    statistics = ActionStatistics.choose(model.config.norm_stats, unnorm_key)
    tolerance = sooner.Tolerance(ActionTokens.of(model.config), statistics.dims, bins)
    eagle = sooner.Eagle(
{values}    )
    return model.generate(**arguments, custom_generate=sooner.Relaxed(eagle, tolerance))
"""

DRAW = """{check}    method = sooner.CoupledJacobi(
{values}    )
    # As in `generate`: drawn if `do_sample` says so.
    config = arguments.pop("generation_config", None) or model.generation_config
    if (mode := config.get_generation_mode()) not in ("sample", "greedy_search"):
        raise sooner.SoonerError(f"scd draws or takes the likeliest code, not {{mode.value}}")
    options = {{"guidance": guidance}}
    for name in ("do_sample", "temperature", "top_k", "top_p"):
        value = arguments.pop(name, None)
        options[name] = getattr(config, name, None) if value is None else value
    options = {{name: value for name, value in options.items() if value is not None}}
    ids = arguments.pop("inputs", None)
    inputs = {{
        "input_ids": arguments.pop("input_ids", ids),
        "attention_mask": arguments.pop("attention_mask", None),
    }}
    arguments.pop("use_model_defaults", None)
    if left := [name for name, value in arguments.items() if value is not None]:
        raise sooner.SoonerError(f"scd knows no {{', '.join(left)}}; leave it out")
    inputs = {{name: value for name, value in inputs.items() if value is not None}}
    options = {{"do_sample": False, "count": count, "seed": seed, **options}}
    return sooner.draw(sooner.canvas(model), inputs, method, **options).tokens
"""

PAGE = """---
library_name: transformers
license: apache-2.0
pipeline_tag: {task}
tags:
- custom_generate
- speculative-decoding
- sooner
---

# {title}

{summary} For {models}.{paper}

```bash
pip install "sooner>={version}"
```

```python
{example}
```

{mode}

| option | default | what it is |
|---|---|---|
{rows}
"""

EXACT = (
    "The result is exact: the tokens that the model's own `generate` says, greedily, and its "
    "distribution where tokens are drawn. Batches of ragged rows, logits processors, stopping "
    "criteria and streamers work as they do in `generate`; what can't be honoured is refused in a "
    "line. With `return_dict_in_generate=True` the output's `stats` tell what was drafted, what "
    "was accepted, and where the time went."
)
MODES = {
    "hsd": EXACT + " Below an `acceptance_threshold` of 1 it is relaxed, as in the paper.",
    "mminference": "The result is approximate: attention over the prompt is sparse.",
    "spec-vla": "The result is exact with `bins=0`, and relaxed otherwise: each token but the "
    "gripper's is within so many bins of the policy's own choice.",
    "scd": "The distribution of drawings is the model's own. What comes back are codes, "
    "`[rows, codes]`; `sooner.models.canvas(model).pixels(codes)` decodes them.",
}

DESCRIPTIONS = {
    "assistant_model": "the draft, a loaded model",
    "head": "a head that was trained for the model, from `sooner.load_drafter`; its folder or "
    "repository does as well, and is loaded in every call",
    "drafts": "for each prompt a list of texts, such as the regions that an OCR pipeline read",
    "tokenizer": "the model's own",
    "unnorm_key": "the data set whose statistics count, where the policy knows several",
    "count": "pictures of each prompt",
    "seed": "of every draw; none takes one from torch's generator",
    "guidance": "classifier-free guidance; none takes the checkpoint's own",
    "table": "a file that `sooner search patterns` wrote; none takes defaults that suit the model",
    "bins": "r: how far a drafted token may be from the policy's choice",
    "branching": 'children of the nodes of each level; "auto" takes as many levels as pay',
    "num_draft_tokens": 'how many tokens are drafted at once; "auto" takes what measurably pays',
}
"""The line for classes that `TEXTS` does not name."""


@dataclass(frozen=True)
class Repository:
    """A repository that is uploaded to the model hub.

    Attributes:
        name: of its folder.
        title: of its page.
        type_name: class of `sooner` that does the work.
        summary: what it does, in a sentence.
        drafts: what the user gives it to draft with.
        options: fields of the class, or of `sooner.draw`, that it takes.
        paper: title and authors, where it is of a paper.
        task: pipeline tag of its page.
        models: for whose `generate` it is.
    """

    name: str
    title: str
    type_name: str
    summary: str
    drafts: Drafts = "none"
    options: tuple[str, ...] = ()
    paper: str = ""
    task: str = "image-text-to-text"
    models: str = "vision-language and language models"


CHAIN = ("num_draft_tokens", "max_draft_tokens")
PAGES = (
    Repository(
        "speculative", "Speculative decoding that sees pixels", "Speculative",
        "A small model drafts a chain of tokens from the same text and pixels, and one forward of "
        "the target verifies them, for every row of a batch at its own pace.",
        "model", CHAIN,
    ),
    Repository(
        "parallelvlm", "ParallelVLM", "ParallelVLM",
        "A small model drafts while the target verifies, each on cores or a device of its own, and "
        "sees only the visual tokens that the target's own ranking keeps.",
        "model",
        (
            "prune", "min_visual", "layer", "criterion", *CHAIN, "schedule", "placement",
            "draft_device",
        ),
        paper="ParallelVLM: Lossless Video-LLM Acceleration with Visual Alignment Aware Parallel "
        "Speculative Decoding",
        task="video-text-to-text",
    ),
    Repository(
        "sd-tree", "Trees of a draft model", "SDTree",
        "A small model drafts a tree of fixed shape, and one forward verifies it.",
        "model", ("branching", "siblings"),
    ),
    Repository(
        "onsd", "Speculative decoding with a draft of words alone", "OnSD",
        "A language model drafts for a vision-language model: it gets the words, not the pixels.",
        "model", CHAIN,
    ),
    Repository(
        "prompt-lookup", "Prompt lookup in batches", "PromptLookup",
        "What followed the last few tokens earlier in the text is proposed; no model is needed.",
        "none", (*CHAIN, "max_ngram", "min_ngram"),
    ),
    Repository(
        "eagle", "Trees of trained heads: EAGLE-3 and others", "Eagle",
        "A head that was trained on the target's states drafts a dynamic tree; published EAGLE-3 "
        "heads are read as they are.",
        "head", ("nodes", "depth", "top_k", "max_nodes"),
    ),
    Repository(
        "dflash", "DFlash: blocks of drafts in one forward", "DFlash",
        "A small block-diffusion model that was trained on the target's states drafts a whole "
        "block at once; published DFlash, DFlash 2, DSpark and Domino drafters are read as they "
        "are.",
        "head", ("num_draft_tokens",),
    ),
    Repository(
        "ddtree", "DDTree: trees of a block drafter's marginals", "DDTree",
        "The most probable continuations under a DFlash drafter's marginals are verified as one "
        "tree.",
        "head", ("nodes", "max_nodes"),
    ),
    Repository(
        "assistant", "Gemma 4's assistants, in batches", "Assistant",
        "A few layers that read the model's own keys and values draft a chain; Gemma 4's published "
        "assistants are read as they are.",
        "head", CHAIN, models="Gemma 4",
    ),
    Repository(
        "hsd", "Hierarchical speculative decoding of documents: verification", "HSD",
        "Texts that something quick and rough made beforehand, such as OCR, are aligned with what "
        "the target says and verified as a tree.",
        "texts",
        ("reference_window", "acceptance_threshold", "nodes", "max_nodes", "depth", "width"),
        paper="Training-Free Acceleration for Document Parsing Vision-Language Model with "
        "Hierarchical Speculative Decoding",
        models="document parsers and other vision-language models",
    ),
    Repository(
        "mminference", "MMInference", "MMInference",
        "Prefills long prompts with sparse attention that knows modalities; decoding stays as it "
        "was. The result is approximate.",
        "none", ("table", "dense_below", "mlp_chunk", "backend"),
        paper="MMInference: Accelerating Pre-filling for Long-Context VLMs via Modality-Aware "
        "Permutation Sparse Attention",
        task="video-text-to-text",
    ),
    Repository(
        "spec-vla", "Spec-VLA", "Relaxed",
        "Action tokens of a robot's policy, drafted by a trained head and accepted where they are "
        "within a few bins of the policy's own choice.",
        "head", ("bins", "nodes", "depth", "top_k"),
        paper="Spec-VLA: Speculative Decoding for Vision-Language-Action Models with Relaxed "
        "Acceptance",
        task="robotics",
        models="OpenVLA, loaded by `sooner.models.openvla`",
    ),
    Repository(
        "scd", "Speculative coupled decoding", "CoupledJacobi",
        "Pictures and clips of autoregressive models: a window of the last iteration is the draft, "
        "and its draws are coupled with the target's.",
        "none",
        ("jacobi_window", "coupling", "strength", "init", "count", "seed", "guidance"),
        paper="Your Autoregressive Visual Model Is a Natively Multi-Token Predictor: Speculative "
        "Coupled Decoding for Fast Autoregressive Visual Generation",
        task="text-to-image",
        models="Janus, Lumina-mGPT (Chameleon) and Emu3",
    ),
)  # fmt: skip


def files() -> dict[str, str]:
    """Returns every file of every repository by its path."""
    contents = {"README.md": index()}
    for repo in PAGES:
        contents[f"{repo.name}/README.md"] = page(repo)
        contents[f"{repo.name}/custom_generate/generate.py"] = code(repo)
        contents[f"{repo.name}/custom_generate/requirements.txt"] = f"sooner>={LAST}\n"
    return contents


def index() -> str:
    """Returns what the folder of all of them says of itself."""
    rows = "".join(
        f"| [`{repo.name}`]({repo.name}/README.md) | {repo.summary} |\n" for repo in PAGES
    )
    return (
        "# Repositories for the model hub\n\n"
        "A folder each, ready to be uploaded (`hf upload ORG/parallelvlm hub/parallelvlm`), for\n"
        '`model.generate(**inputs, custom_generate="ORG/parallelvlm", trust_remote_code=True)`; a '
        "folder's\npath does as well as a repository's name. Written by `tools/hub_pages.py` "
        f"from sooner {__version__}.\n\n| repository | what it does |\n|---|---|\n{rows}"
    )


BODIES = {"MMInference": PREFILL, "Relaxed": ACT, "CoupledJacobi": DRAW}
"""What is no plain decoding by a method's class."""
IMPORTS = {
    "MMInference": ("from functools import partial\n\nimport sooner", ""),
    "Relaxed": (
        "import sooner",
        "from sooner.models.openvla.statistics import ActionStatistics, ActionTokens\n",
    ),
}
ELSEWHERE = ("bins", "count", "seed", "guidance", "table")
"""Options that are not fields of the class that drafts."""


def code(repo: Repository) -> str:
    """Returns `custom_generate/generate.py`."""
    options, given = defaults(repo), GIVEN[repo.drafts]
    first = "".join(f"        {name},\n" for name in given)
    signature = "".join(f"    {name}=None,\n" for name in given)
    if repo.drafts == "texts":
        first += "        tokenizer=tokenizer,\n"
        signature += "    tokenizer=None,\n"
    if repo.name == "spec-vla":
        signature += "    unnorm_key=None,\n"
    fields = [name for name in options if name not in ELSEWHERE]
    has_model = "assistant_model" in given
    body = BODIES.get(repo.type_name, BODY).format(
        type_name=repo.type_name,
        check=("" if has_model else REFUSAL.format(type_name=repo.type_name))
        + "".join(
            CHECK.format(name=name, type_name=repo.type_name, what=what)
            for name, what in given.items()
        ),
        values=first + "".join(f"        {name}={name},\n" for name in fields),
        options="".join(f'        "{name}": {name},\n' for name in fields),
        more=", tokenizer=tokenizer" if repo.drafts == "texts" else "",
    )
    text = CODE.format(
        title=repo.title,
        name=repo.name,
        summary="\n    ".join(textwrap.wrap(repo.summary, 88)),
        signature=signature
        + "".join(f"    {name}={_literal(value)},\n" for name, value in options.items()),
        body=body,
    )
    start, end = IMPORTS.get(repo.type_name, ("import sooner", ""))
    return text.replace("import sooner\n", f"{start}\n{end}", 1)


def page(repo: Repository) -> str:
    """`README.md`, with the tags by which the hub finds it."""
    rows = [("assistant_model", "needed", DESCRIPTIONS["assistant_model"])] * (
        repo.drafts == "model"
    )
    rows += [("assistant_model", "needed", DESCRIPTIONS["head"])] * (repo.drafts == "head")
    if repo.drafts == "texts":
        rows += [
            ("drafts", "needed", DESCRIPTIONS["drafts"]),
            ("tokenizer", "needed", DESCRIPTIONS["tokenizer"]),
        ]
    if repo.name == "spec-vla":
        rows.append(("unnorm_key", "`None`", DESCRIPTIONS["unnorm_key"]))
    texts = descriptions(repo)
    rows += [(name, f"`{_literal(value)}`", texts[name]) for name, value in defaults(repo).items()]
    return PAGE.format(
        title=repo.title, task=repo.task, summary=repo.summary, models=repo.models, version=LAST,
        paper=f" The paper: *{repo.paper}*." if repo.paper else "",
        example=_example(repo),
        mode=MODES.get(repo.name, EXACT),
        rows="\n".join(f"| `{name}` | {value} | {text} |" for name, value, text in rows),
    )  # fmt: skip


def _literal(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _example(repo: Repository) -> str:
    values = {
        "model": ["assistant_model=draft_model"],
        "head": ['assistant_model=sooner.load_drafter("ORG/HEAD")'],
        "texts": ["drafts=[texts]", "tokenizer=processor.tokenizer"],
    }.get(repo.drafts, [])
    lines = ["**inputs", f'custom_generate="ORG/{repo.name}"', "trust_remote_code=True", *values]
    if repo.name == "scd":
        lines.append("do_sample=True")
    elif repo.name != "spec-vla":
        lines.append("max_new_tokens=512")
    return "output = model.generate(\n" + "".join(f"    {line},\n" for line in lines) + ")"


def descriptions(repo: Repository) -> dict[str, str]:
    """Returns what each option is, from the docstrings of the classes that have it."""
    texts = dict(DESCRIPTIONS)
    for kind in reversed(kinds(repo)):
        texts |= {
            name: text.rstrip(".").replace("|", "or") for name, text in described(kind).items()
        }
    return {name: texts[name] for name in repo.options}


def defaults(repo: Repository) -> dict[str, Any]:
    """Returns what each option of a repository is where the user says nothing."""
    values: dict[str, Any] = {}
    for kind in kinds(repo):
        for name, parameter in inspect.signature(kind).parameters.items():
            if name in repo.options:
                values.setdefault(name, parameter.default)
    if "bins" in repo.options:
        values["bins"] = 0
    for name in ("seed", "guidance"):
        if name in repo.options:
            values[name] = None
    return {name: values[name] for name in repo.options}


def kinds(repo: Repository) -> list[Any]:
    """Returns the classes and functions whose options a repository takes."""
    if repo.type_name == "MMInference":
        return [MMInference]
    more: dict[str, list[Any]] = {
        "Relaxed": [methods.Eagle, methods.Tolerance],
        "CoupledJacobi": [drawing.draw],
    }
    first: list[Any] = [method_types()[repo.type_name].load()]
    return first + more.get(repo.type_name, [])


def main() -> int:
    """Writes every file below `hub/`, and prints its path."""
    for name, text in files().items():
        path = Path(__file__).parents[1] / "hub" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(path)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
