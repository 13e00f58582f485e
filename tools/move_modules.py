"""Moves modules of the library by a table and rewrites every import of them.

usage:
    python tools/move_modules.py TABLE

A row of the table is `old<TAB>new`, two dotted names of modules or packages under `sooner` or
`sooner_lab`. Imports keep their form: what was relative stays relative.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

HOMES = {"sooner": Path("src"), "sooner_lab": Path("lab/src")}
TEXTS = (".py", ".md", ".toml", ".yml", ".txt", ".cfg", ".json")


def module_of(path: Path) -> str | None:
    """The dotted name of a file of a package, or None for a file outside of one."""
    for name, home in HOMES.items():
        if path.is_relative_to(home / name):
            parts = path.relative_to(home).with_suffix("").parts
            return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    return None


def moved(name: str, table: dict[str, str]) -> str:
    """The new name of a module: by its own row, or by that of its nearest package."""
    probe = name
    while probe:
        if probe in table:
            return table[probe] + name[len(probe) :]
        probe = probe.rpartition(".")[0]
    return name


def file_of(name: str) -> Path:
    """The file or folder of a dotted name."""
    home = HOMES[name.split(".")[0]].joinpath(*name.split("."))
    return home if home.is_dir() else home.with_suffix(".py")


def relative(target: str, module: str, is_package: bool) -> str:
    """`target` as a relative import of `module` writes it."""
    base = module.split(".") if is_package else module.split(".")[:-1]
    names = target.split(".")
    shared = 0
    while shared < min(len(base), len(names)) and base[shared] == names[shared]:
        shared += 1
    return "." * (len(base) - shared + 1) + ".".join(names[shared:])


def rewritten(
    path: Path, old: str | None, new: str | None, known: set[str], table: dict[str, str]
) -> str:
    """The text of a file with its imports rewritten; `old` and `new` are its own names."""
    text = path.read_text(encoding="utf-8")
    lines = text.split("\n")
    is_package = path.stem == "__init__"
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)]
    for node in sorted(nodes, key=lambda each: -each.lineno):
        if node.level:
            if old is None:
                continue
            base = old.split(".") if is_package else old.split(".")[:-1]
            base = base[: len(base) - node.level + 1]
            target = ".".join([*base, *(node.module or "").split(".")]).rstrip(".")
        else:
            target = node.module or ""
        if target.split(".")[0] not in HOMES:
            continue
        groups: dict[tuple[str, str | None], list[ast.alias]] = {}
        for alias in node.names:
            whole = f"{target}.{alias.name}"
            if whole in known and moved(whole, table) != f"{moved(target, table)}.{alias.name}":
                home, _, leaf = moved(whole, table).rpartition(".")
                groups.setdefault((home, leaf), []).append(alias)
            else:
                groups.setdefault((moved(target, table), None), []).append(alias)
        written = {
            home: relative(home, str(new), is_package) if node.level else home for home, _ in groups
        }
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        named = next(iter(written.values()))
        if len(groups) == 1 and next(iter(groups))[1] is None:
            lines[first] = re.sub(
                r"from\s+[.\w]+\s+import",
                f"from {named} import",
                lines[first],
                count=1,
            )
            continue
        indent = re.match(r"\s*", lines[first])
        statements = []
        for (home, leaf), aliases in groups.items():
            if leaf is None:
                names = ", ".join(
                    each.name + (f" as {each.asname}" if each.asname else "") for each in aliases
                )
            else:
                called = aliases[0].asname or aliases[0].name
                names = leaf if leaf == called else f"{leaf} as {called}"
            statements.append(f"{indent[0] if indent else ''}from {written[home]} import {names}")
        lines[first : last + 1] = statements
    return "\n".join(lines)


def move(path: Path, goal: Path) -> None:
    """Moves a tracked file."""
    goal.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["git", "mv", str(path), str(goal)], check=True)


def main() -> int:
    """Rewrites the imports of every tracked file, then moves the files."""
    rows = Path(sys.argv[1]).read_text(encoding="utf-8").split("\n")
    table = dict(row.split("\t") for row in rows if row)
    listed = subprocess.run(["git", "ls-files"], check=True, capture_output=True, text=True).stdout
    files = [Path(name) for name in listed.split("\n") if name.endswith(TEXTS)]
    known = {name for path in files if (name := module_of(path)) and path.suffix == ".py"}
    known |= {name.rpartition(".")[0] for name in known}
    sources = {old: file_of(old) for old in table}
    paths = {
        old.replace(".", "/") + sources[old].suffix: new.replace(".", "/") + sources[old].suffix
        for old, new in table.items()
    }
    dotted = re.compile(
        r"(?<![\w.])(" + "|".join(map(re.escape, sorted(table, key=len, reverse=True))) + r")(?!\w)"
    )
    slashed = re.compile(
        r"(?<!\w)(" + "|".join(map(re.escape, sorted(paths, key=len, reverse=True))) + r")(?!\w)"
    )
    for path in files:
        if path.is_relative_to("docs/results") or not path.exists():
            continue
        old = module_of(path)
        if path.suffix == ".py":
            text = rewritten(path, old, old and moved(old, table), known, table)
        else:
            text = path.read_text(encoding="utf-8")
        text = "\n".join(
            line
            if path.suffix == ".py" and line.lstrip().startswith("from ")
            else dotted.sub(lambda match: table[match[1]], line)
            for line in text.split("\n")
        )
        text = slashed.sub(lambda match: paths[match[1]], text)
        path.write_text(text, encoding="utf-8")
    for old, new in table.items():
        goal = HOMES[new.split(".")[0]].joinpath(*new.split("."))
        source = sources[old]
        for path in files:
            if path == source:
                move(path, goal.with_suffix(".py"))
            elif path.is_relative_to(source):
                move(path, goal / path.relative_to(source))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
