"""The files of the repositories, written from the methods' own fields and docstrings."""

from __future__ import annotations

import inspect
import re
from typing import Any

from .. import __version__
from .repositories import REPOSITORIES, Repository
from .runs import defaults, kinds

LAST = "0.2.0"
"""Oldest version of sooner that runs what is written here."""

CODE = '''"""{title}.

`model.generate(**inputs, custom_generate="ORG/{name}", trust_remote_code=True)`;
the README says what the options mean.
"""

from sooner.hub import run


def generate(
    model,
{signature}    **arguments,
):
    """{summary}"""
    options = {{
{options}    }}
    return run("{name}", model, options, arguments)
'''

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

OWN = {
    "assistant_model": "the draft: a loaded model, a folder or a repository",
    "head": "a folder or a repository of a head that was trained for the model",
    "drafts": "for each prompt a list of texts, such as the regions that an OCR pipeline read",
    "tokenizer": "the model's own",
    "unnorm_key": "the data set whose statistics count, where the policy knows several",
    "count": "pictures of each prompt",
    "seed": "of every draw; none takes one from torch's generator",
    "guidance": "classifier-free guidance; none takes the checkpoint's own",
    "table": "a file that `sooner search patterns` wrote, here or as `org/name/patterns.json`; "
    "none takes defaults that suit the model",
    "bins": "r: how far a drafted token may be from the policy's choice",
    "branching": 'children of the nodes of each level; "auto" takes as many levels as pay',
    "num_draft_tokens": 'how many tokens are drafted at once; "auto" takes what measurably pays',
}
"""Of what no class is told in these words."""


def files() -> dict[str, str]:
    """Returns every file of every repository by its path."""
    found = {"README.md": index()}
    for one in REPOSITORIES:
        found[f"{one.name}/README.md"] = page(one)
        found[f"{one.name}/custom_generate/generate.py"] = code(one)
        found[f"{one.name}/custom_generate/requirements.txt"] = f"sooner>={LAST}\n"
    return found


def index() -> str:
    """Returns what the folder of all of them says of itself."""
    rows = "".join(
        f"| [`{one.name}`]({one.name}/README.md) | {one.summary} |\n" for one in REPOSITORIES
    )
    return (
        "# Repositories for the model hub\n\n"
        "A folder each, ready to be uploaded (`hf upload ORG/parallelvlm hub/parallelvlm`), for\n"
        '`model.generate(**inputs, custom_generate="ORG/parallelvlm", trust_remote_code=True)`; a '
        "folder's\npath does as well as a repository's name. Written by `python -m sooner.hub hub` "
        f"from sooner {__version__}.\n\n| repository | what it does |\n|---|---|\n{rows}"
    )


def code(told: Repository) -> str:
    """`custom_generate/generate.py`."""
    values = defaults(told)
    return CODE.format(
        title=told.title,
        name=told.name,
        summary=_wrapped(told.summary, 4),
        signature="".join(f"    {name}={_literal(value)},\n" for name, value in values.items()),
        options="".join(f'        "{name}": {name},\n' for name in values),
    )


def page(told: Repository) -> str:
    """`README.md`, with the tags by which the hub finds it."""
    rows = [("assistant_model", "needed", OWN["assistant_model"])] * (told.drafts == "model")
    rows += [("assistant_model", "needed", OWN["head"])] * (told.drafts == "head")
    if told.drafts == "texts":
        rows += [("drafts", "needed", OWN["drafts"]), ("tokenizer", "needed", OWN["tokenizer"])]
    if told.name == "spec-vla":
        rows.append(("unnorm_key", "`None`", OWN["unnorm_key"]))
    texts = descriptions(told)
    rows += [(name, f"`{_literal(value)}`", texts[name]) for name, value in defaults(told).items()]
    return PAGE.format(
        title=told.title, task=told.task, summary=told.summary, models=told.models, version=LAST,
        paper=f" The paper: *{told.paper}*." if told.paper else "",
        example=_example(told),
        mode=MODES.get(told.name, EXACT),
        rows="\n".join(f"| `{name}` | {value} | {text} |" for name, value, text in rows),
    )  # fmt: skip


def _literal(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _example(told: Repository) -> str:
    given = {
        "model": ["assistant_model=draft_model"],
        "head": ['assistant_model="ORG/HEAD"'],
        "texts": ["drafts=[texts]", "tokenizer=processor.tokenizer"],
    }.get(told.drafts, [])
    lines = ["**inputs", f'custom_generate="ORG/{told.name}"', "trust_remote_code=True", *given]
    if told.name == "scd":
        lines.append("do_sample=True")
    elif told.name != "spec-vla":
        lines.append("max_new_tokens=512")
    return "output = model.generate(\n" + "".join(f"    {one},\n" for one in lines) + ")"


def descriptions(told: Repository) -> dict[str, str]:
    """Returns what each option is, from the docstrings of the classes that have it."""
    found: dict[str, str] = {}
    for kind in kinds(told):
        for base in inspect.getmro(kind) if inspect.isclass(kind) else (kind,):
            for name, text in _arguments(inspect.getdoc(base) or "").items():
                found.setdefault(name, text)
    found = OWN | found
    return {name: found[name] for name in told.options}


def _arguments(doc: str) -> dict[str, str]:
    """Returns the section `Args` of a docstring; a line may tell of several names."""
    section = re.search(r"^Args:\n(.*?)(?=^\S|\Z)", doc, re.M | re.S)
    found: dict[str, str] = {}
    for names, text in re.findall(
        r"^    ([\w, ]+): (.*?)(?=^    \w|\Z)", section[1] if section else "", re.M | re.S
    ):
        told = " ".join(text.split()).rstrip(".").replace("|", "or")
        found |= {name.strip(): told for name in names.split(",")}
    return found


def _wrapped(text: Any, indent: int) -> str:
    import textwrap

    return ("\n" + " " * indent).join(textwrap.wrap(str(text), 92 - indent))
