"""Writes the repositories for the model hub, from the methods' own fields and docstrings.

usage:
    python tools/hub_pages.py        # writes hub/, a folder each
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from sooner import __version__
from sooner.checks import described
from sooner.hub.repositories import REPOSITORIES, Repository
from sooner.hub.runs import defaults, kinds

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

DESCRIPTIONS = {
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
"""The line for classes that `TEXTS` does not name."""


def files() -> dict[str, str]:
    """Returns every file of every repository by its path."""
    contents = {"README.md": index()}
    for repo in REPOSITORIES:
        contents[f"{repo.name}/README.md"] = page(repo)
        contents[f"{repo.name}/custom_generate/generate.py"] = code(repo)
        contents[f"{repo.name}/custom_generate/requirements.txt"] = f"sooner>={LAST}\n"
    return contents


def index() -> str:
    """Returns what the folder of all of them says of itself."""
    rows = "".join(
        f"| [`{repo.name}`]({repo.name}/README.md) | {repo.summary} |\n" for repo in REPOSITORIES
    )
    return (
        "# Repositories for the model hub\n\n"
        "A folder each, ready to be uploaded (`hf upload ORG/parallelvlm hub/parallelvlm`), for\n"
        '`model.generate(**inputs, custom_generate="ORG/parallelvlm", trust_remote_code=True)`; a '
        "folder's\npath does as well as a repository's name. Written by `tools/hub_pages.py` "
        f"from sooner {__version__}.\n\n| repository | what it does |\n|---|---|\n{rows}"
    )


def code(repo: Repository) -> str:
    """Returns `custom_generate/generate.py`."""
    values = defaults(repo)
    return CODE.format(
        title=repo.title,
        name=repo.name,
        summary="\n    ".join(textwrap.wrap(repo.summary, 88)),
        signature="".join(f"    {name}={_literal(value)},\n" for name, value in values.items()),
        options="".join(f'        "{name}": {name},\n' for name in values),
    )


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
        "head": ['assistant_model="ORG/HEAD"'],
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
