# ruff: noqa: E501, N802
"""Renames identifiers over the whole tree by tables that are committed beside this file.

usage:
    python tools/rename.py list PATH ...          # riddle words in each scope, with the lines that bind them
    python tools/rename.py apply TABLE [--write]  # checks a table, and with --write changes the files

A table is a TSV file. A row of four columns, `file scope old new`, renames a variable or a
parameter in one function: `scope` is the function's qualified name (`Class.method`, `outer.inner`)
or `<module>` for names that a module or a class body binds and no other file imports. A row of three
columns, `* old new`, renames an attribute, a function, a class or a dataclass field everywhere.

A parameter is renamed in every function of that name, with the keywords of the calls. Names in
backticks and in `Args:` follow. Needs `libcst`.
"""

from __future__ import annotations

import argparse
import builtins
import collections
import gzip
import keyword
import re
import sys
from pathlib import Path

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider
from words import is_riddle

ROOTS = ("src", "lab/src", "lab/tests", "tests", "miniatures/src", "tools", "prototypes")
REFLECTION = {"getattr", "setattr", "hasattr", "delattr", "attrgetter", "methodcaller", "delenv"}
MODULE = "<module>"


def read(table: Path) -> str:
    """Returns the text of a table, which may be packed: those that were applied are `.tsv.gz`."""
    data = table.read_bytes()
    return (gzip.decompress(data) if table.suffix == ".gz" else data).decode()


def python_files(roots: tuple[str, ...] | list[str]) -> list[Path]:
    """The Python files under `roots`, sorted."""
    files: set[Path] = set()
    for root in roots:
        path = Path(root)
        files.update([path] if path.is_file() else path.rglob("*.py"))
    return sorted(files)


class Scopes(cst.CSTVisitor):
    """Collects, for each function of a file, the names that it binds and those that it reads."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self) -> None:
        self.stack: list[str] = []
        self.kinds: list[str] = []
        self.bound: dict[str, dict[str, list[int]]] = collections.defaultdict(
            lambda: collections.defaultdict(list)
        )
        self.params: dict[str, set[str]] = collections.defaultdict(set)
        self.used: dict[str, collections.Counter[str]] = collections.defaultdict(
            collections.Counter
        )
        self.free: dict[str, set[str]] = collections.defaultdict(set)
        self.spans: dict[str, tuple[int, int]] = {}
        self.fields: dict[str, list[int]] = collections.defaultdict(list)
        self.definitions: dict[str, list[int]] = collections.defaultdict(list)
        self.attributes: dict[str, list[int]] = collections.defaultdict(list)

    @property
    def scope(self) -> str:
        """The qualified name of the innermost function, or `<module>`."""
        for end in range(len(self.stack), 0, -1):
            if self.kinds[end - 1] == "function":
                return ".".join(self.stack[:end])
        return MODULE

    def _line(self, node: cst.CSTNode) -> int:
        return self.get_metadata(PositionProvider, node).start.line

    def _enter(self, node: cst.FunctionDef | cst.ClassDef, kind: str) -> None:
        self.definitions[node.name.value].append(self._line(node))
        if not self.kinds or self.kinds[-1] != "class":
            self._bind(node.name.value, self._line(node))
        self.stack.append(node.name.value)
        self.kinds.append(kind)
        where = self.get_metadata(PositionProvider, node)
        self.spans.setdefault(".".join(self.stack), (where.start.line, where.end.line))

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self._enter(node, "function")

    def leave_FunctionDef(self, original_node: cst.FunctionDef) -> None:
        self.stack.pop()
        self.kinds.pop()

    def visit_ClassDef(self, node: cst.ClassDef) -> None:
        self._enter(node, "class")

    def leave_ClassDef(self, original_node: cst.ClassDef) -> None:
        self.stack.pop()
        self.kinds.pop()

    def _bind(self, name: str, line: int) -> None:
        if self.kinds and self.kinds[-1] == "class":
            self.fields[name].append(line)
        else:
            self.bound[self.scope][name].append(line)

    def visit_Param(self, node: cst.Param) -> None:
        self._bind(node.name.value, self._line(node))
        in_lambda = getattr(self, "_lambdas", 0)
        if not in_lambda:
            self.params[self.scope].add(node.name.value)

    def visit_Lambda(self, node: cst.Lambda) -> None:
        self._lambdas = getattr(self, "_lambdas", 0) + 1

    def leave_Lambda(self, original_node: cst.Lambda) -> None:
        self._lambdas -= 1

    def _targets(self, node: cst.CSTNode) -> None:
        if isinstance(node, cst.Name):
            self._bind(node.value, self._line(node))
        elif isinstance(node, cst.Tuple | cst.List):
            for element in node.elements:
                self._targets(element.value)

    def visit_AssignTarget(self, node: cst.AssignTarget) -> None:
        self._targets(node.target)

    def visit_AnnAssign(self, node: cst.AnnAssign) -> None:
        self._targets(node.target)

    def visit_AugAssign(self, node: cst.AugAssign) -> None:
        self._targets(node.target)

    def visit_NamedExpr(self, node: cst.NamedExpr) -> None:
        self._targets(node.target)

    def visit_For(self, node: cst.For) -> None:
        self._targets(node.target)

    def visit_CompFor(self, node: cst.CompFor) -> None:
        self._targets(node.target)

    def visit_AsName(self, node: cst.AsName) -> None:
        self._targets(node.name)

    def visit_MatchAs(self, node: cst.MatchAs) -> None:
        if node.name:
            self._targets(node.name)

    def visit_ImportAlias(self, node: cst.ImportAlias) -> None:
        if not node.asname:
            name = node.name
            while isinstance(name, cst.Attribute):
                name = name.value  # type: ignore[assignment]
            self._bind(cst.ensure_type(name, cst.Name).value, self._line(node))

    def visit_Global(self, node: cst.Global) -> None:
        self.free[self.scope].update(item.name.value for item in node.names)

    def visit_Nonlocal(self, node: cst.Nonlocal) -> None:
        self.free[self.scope].update(item.name.value for item in node.names)

    def visit_Attribute(self, node: cst.Attribute) -> None:
        self.attributes[node.attr.value].append(self._line(node.attr))

    def visit_Name(self, node: cst.Name) -> None:
        self.used[self.scope][node.value] += 1

    def binder(self, scope: str, name: str) -> str | None:
        """The function around `scope`, itself included, that binds `name`; `None` if it is global."""
        while scope != MODULE:
            if name in self.bound[scope] and name not in self.free[scope]:
                return scope
            scope = self.parent(scope)
        return MODULE if name in self.bound[MODULE] else None

    def parent(self, scope: str) -> str:
        """The function around `scope`, or `<module>`."""
        parts = scope.split(".")
        for end in range(len(parts) - 1, 0, -1):
            if ".".join(parts[:end]) in self.bound or ".".join(parts[:end]) in self.used:
                return ".".join(parts[:end])
        return MODULE


def analyse(path: Path) -> tuple[MetadataWrapper, Scopes]:
    """Parses a file and collects its scopes."""
    wrapper = MetadataWrapper(cst.parse_module(path.read_text()), unsafe_skip_copy=True)
    scopes = Scopes()
    wrapper.visit(scopes)
    return wrapper, scopes


class Rename(cst.CSTTransformer):
    """Applies a table to one file; `counts` says how often each row was used."""

    def __init__(self, scopes, local, keywords, everywhere) -> None:
        self.scopes: Scopes = scopes
        self.local: dict[tuple[str, str], str] = local
        self.keywords: dict[tuple[str, str], str] = keywords
        self.everywhere: dict[str, str] = everywhere
        self.stack: list[str] = []
        self.kinds: list[str] = []
        self.calls: list[str] = []
        self.counts: collections.Counter = collections.Counter()
        self.skip: set[int] = set()

    scope = Scopes.scope

    def visit_FunctionDef(self, node):
        self.skip.add(id(node.name))
        self.stack.append(node.name.value)
        self.kinds.append("function")

    def leave_FunctionDef(self, original_node, updated_node):
        scope = self.scope
        self.stack.pop()
        self.kinds.pop()
        updated_node = updated_node.with_changes(
            name=self._defined(original_node.name),
            decorators=[self._parametrized(scope, item) for item in updated_node.decorators],
        )
        return self._documented(scope, updated_node)

    def _parametrized(self, scope: str, decorator: cst.Decorator) -> cst.Decorator:
        call = decorator.decorator
        if not isinstance(call, cst.Call) or not call.args:
            return decorator
        name = getattr(getattr(call.func, "attr", None), "value", "")
        if name not in ("parametrize", "usefixtures"):
            return decorator
        owner = scope if name == "parametrize" else MODULE
        args = list(call.args)
        for place in range(1 if name == "parametrize" else len(args)):
            args[place] = args[place].with_changes(value=self._quoted(owner, args[place].value))
        return decorator.with_changes(decorator=call.with_changes(args=args))

    def _quoted(self, scope: str, value):
        if isinstance(value, cst.Tuple | cst.List):
            elements = [e.with_changes(value=self._quoted(scope, e.value)) for e in value.elements]
            return value.with_changes(elements=elements)
        if not isinstance(value, cst.SimpleString):
            return value
        text = re.sub(
            r"[A-Za-z_]\w*", lambda m: self.local.get((scope, m[0]), m[0]), value.raw_value
        )
        return value.with_changes(value=value.value.replace(value.raw_value, text))

    def visit_ClassDef(self, node):
        self.skip.add(id(node.name))
        self.stack.append(node.name.value)
        self.kinds.append("class")

    def leave_ClassDef(self, original_node, updated_node):
        self.stack.pop()
        self.kinds.pop()
        return updated_node.with_changes(name=self._defined(original_node.name))

    def _defined(self, name: cst.Name) -> cst.Name:
        if self.kinds and self.kinds[-1] == "class":
            return self._everywhere(name)
        return self._variable(name)

    def _everywhere(self, name: cst.Name) -> cst.Name:
        new = self.everywhere.get(name.value)
        if new is None:
            return name
        self.counts["*", name.value] += 1
        return name.with_changes(value=new)

    def _variable(self, name: cst.Name) -> cst.Name:
        old = name.value
        binder = self.scopes.binder(self.scope, old)
        if binder is None or binder == MODULE:
            if (MODULE, old) in self.local and binder == MODULE:
                self.counts[MODULE, old] += 1
                return name.with_changes(value=self.local[MODULE, old])
            return self._everywhere(name)
        new = self.local.get((binder, old))
        if new is None:
            return name
        self.counts[binder, old] += 1
        return name.with_changes(value=new)

    def visit_Attribute(self, node):
        self.skip.add(id(node.attr))

    def leave_Attribute(self, original_node, updated_node):
        return updated_node.with_changes(attr=self._everywhere(original_node.attr))

    def visit_Arg(self, node):
        if node.keyword:
            self.skip.add(id(node.keyword))

    def visit_Call(self, node):
        function = node.func
        name = ""
        if isinstance(function, cst.Name):
            name = function.value
        elif isinstance(function, cst.Attribute):
            name = function.attr.value
        if name == "partial" and node.args:
            first = node.args[0].value
            name = getattr(first, "value", "") if isinstance(first, cst.Name) else name
            if isinstance(first, cst.Attribute):
                name = first.attr.value
        if name in {"cls", "super"} or name == "__init__":
            name = next(
                (
                    s
                    for s, k in zip(self.stack[::-1], self.kinds[::-1], strict=True)
                    if k == "class"
                ),
                name,
            )
        self.calls.append(name)

    def leave_Call(self, original_node, updated_node):
        name = self.calls.pop()
        args = []
        for arg in updated_node.args:
            if arg.keyword:
                new = self.keywords.get((name, arg.keyword.value))
                if new is None and name in {"replace", "dict", "SimpleNamespace", "_replace"}:
                    new = self.everywhere.get(arg.keyword.value) if name != "dict" else None
                if new is None and name[:1].isupper():
                    new = self.everywhere.get(arg.keyword.value)
                if new:
                    arg = arg.with_changes(keyword=arg.keyword.with_changes(value=new))
            args.append(arg)
        if name in REFLECTION or name in {"setattr", "setenv", "patch", "object"}:
            args = [self._string(arg) for arg in args]
        return updated_node.with_changes(args=args)

    def _string(self, arg):
        value = arg.value
        if isinstance(value, cst.SimpleString):
            text = value.raw_value
            head, _, tail = text.rpartition(".")
            if tail in self.everywhere:
                new = (head + "." if head else "") + self.everywhere[tail]
                return arg.with_changes(
                    value=value.with_changes(value=value.value.replace(text, new))
                )
        return arg

    def leave_Name(self, original_node, updated_node):
        if id(original_node) in self.skip:
            return updated_node
        if self.kinds and self.kinds[-1] == "class" and original_node.value in self.scopes.fields:
            return self._everywhere(updated_node)
        return self._variable(updated_node)

    def _documented(self, scope, node):
        renamed = {old: new for (owner, old), new in self.local.items() if owner == scope}
        if not renamed or not isinstance(node.body, cst.IndentedBlock) or not node.body.body:
            return node
        first = node.body.body[0]
        if not (
            isinstance(first, cst.SimpleStatementLine)
            and isinstance(first.body[0], cst.Expr)
            and isinstance(first.body[0].value, cst.SimpleString)
        ):
            return node
        string = first.body[0].value
        text = string.value
        for old, new in renamed.items():
            text = re.sub(rf"`{old}`", f"`{new}`", text)
            text = re.sub(rf"(?m)^(\s+){old}:", rf"\g<1>{new}:", text)
        if text == string.value:
            return node
        changed = first.with_changes(
            body=[first.body[0].with_changes(value=string.with_changes(value=text))]
        )
        return node.with_changes(body=node.body.with_changes(body=[changed, *node.body.body[1:]]))


def read_table(path: Path) -> tuple[dict[str, dict[tuple[str, str], str]], dict[str, str]]:
    """Reads a table: renames by file and scope, and renames everywhere.

    Raises:
        SystemExit: a row that has neither three nor four columns, or a name that is none.
    """
    local: dict[str, dict[tuple[str, str], str]] = collections.defaultdict(dict)
    everywhere: dict[str, str] = {}
    for number, row in enumerate(read(path).splitlines(), 1):
        if not row.strip() or row.startswith("#"):
            continue
        cells = re.split(r"\t+| +", row.strip())
        if len(cells) not in (3, 4) or (len(cells) == 3 and cells[0] != "*"):
            raise SystemExit(
                f"{path}:{number}: expected `file scope old new` or `* old new`, not {row!r}"
            )
        new = cells[-1]
        if not new.isidentifier() or keyword.iskeyword(new):
            raise SystemExit(f"{path}:{number}: {new!r} is no name")
        if len(cells) == 3:
            everywhere[cells[1]] = new
        else:
            local[cells[0]][cells[1], cells[2]] = new
    return local, everywhere


def check(path: str, scopes: Scopes, local: dict[tuple[str, str], str], lenient: bool) -> list[str]:
    """What is wrong with the rows of one file: nothing to rename, or a name that is in use."""
    problems = []
    imported = set(scopes.bound[MODULE])
    for (scope, old), new in local.items():
        if scope not in scopes.bound or old not in scopes.bound[scope]:
            if not lenient:
                problems.append(f"{path} {scope}: binds no {old!r}")
            continue
        if scope == MODULE:
            if new in scopes.bound[MODULE]:
                problems.append(f"{path}: {new!r} exists already")
            continue
        inner = [s for s in scopes.used if s == scope or s.startswith(scope + ".")]
        others = {o for (s, o), n in local.items() if n == new and s == scope and o != old}
        renamed_away = {o for (s, o) in local if s == scope}
        if any(new in scopes.bound[s] for s in inner) and new not in renamed_away:
            problems.append(f"{path} {scope}: {old} -> {new}, which is a variable there already")
        elif others and len(others & set(scopes.bound[scope])):
            problems.append(f"{path} {scope}: {old} and {', '.join(others)} both become {new}")
        elif (
            any(scopes.used[s][new] for s in inner)
            and new not in renamed_away
            and (new in imported or hasattr(builtins, new))
        ):
            problems.append(
                f"{path} {scope}: {old} -> {new}, which is a global or builtin read there"
            )
    return problems


def apply(table: Path, write: bool, lenient: bool) -> int:
    """Checks a table and applies it; returns the number of problems."""
    local, everywhere = read_table(table)
    files = python_files(ROOTS)
    problems: list[str] = []
    analysed: dict[str, tuple[MetadataWrapper, Scopes]] = {}
    names = {old for rows in local.values() for _, old in rows} | set(everywhere)
    mentioned = re.compile(rf"\b({'|'.join(map(re.escape, sorted(names)))})\b")
    for file in files:
        if str(file) in local or mentioned.search(file.read_text()):
            analysed[str(file)] = analyse(file)
    for path in local:
        if path not in analysed and not lenient:
            problems.append(f"{path}: no such file")
    # Parameters: the same change in every function of the name, and in the calls' keywords.
    keywords: dict[tuple[str, str], str] = {}
    for path, rows in list(local.items()):
        if path not in analysed:
            continue
        scopes = analysed[path][1]
        for (scope, old), new in list(rows.items()):
            if old not in scopes.params.get(scope, ()):
                continue
            parts = scope.split(".")
            name = parts[-2] if parts[-1] == "__init__" and len(parts) > 1 else parts[-1]
            keywords.setdefault((name, old), new)
            if keywords[name, old] != new and not lenient:
                problems.append(
                    f"{path} {scope}: parameter {old} -> {new}, elsewhere {keywords[name, old]}"
                )
    for path, (_, scopes) in analysed.items():
        for scope, params in scopes.params.items():
            parts = scope.split(".")
            name = parts[-2] if parts[-1] == "__init__" and len(parts) > 1 else parts[-1]
            for param in params:
                if (name, param) in keywords and not name.startswith("test_"):
                    local[path].setdefault((scope, param), keywords[name, param])
    for path, (_, scopes) in analysed.items():
        for scope, params in scopes.params.items():
            parts = scope.split(".")
            if parts[-1] == "__init__" and len(parts) > 1:
                for param in params & set(everywhere):
                    local[path].setdefault((scope, param), everywhere[param])
                    keywords.setdefault((parts[-2], param), everywhere[param])
        problems += check(path, scopes, local.get(path, {}), lenient)
    changed = 0
    for path, (wrapper, scopes) in analysed.items():
        rename = Rename(scopes, local.get(path, {}), keywords, everywhere)
        text = wrapper.module.code
        result = wrapper.module.visit(rename).code
        for owner, old in rename.counts:
            if owner == "*" and old in everywhere:
                new = everywhere[old]
                result = re.sub(
                    rf"`((?:\w+\.)*){old}((?:\(.*?\))?)`", rf"`\g<1>{new}\g<2>`", result
                )
        if result != text:
            changed += 1
            if write and not problems:
                Path(path).write_text(result)
    print("\n".join(problems))
    print(f"{changed} files change, {len(problems)} problems", file=sys.stderr)
    if problems and write:
        print("nothing was written", file=sys.stderr)
    return len(problems)


def show(paths: list[str]) -> None:
    """Prints riddle words by scope, with the lines that bind them."""
    for file in python_files(paths):
        _, scopes = analyse(file)
        lines = file.read_text().splitlines()
        rows = []
        for scope, names in scopes.bound.items():
            for name in names:
                if is_riddle(name):
                    kind = "param" if name in scopes.params[scope] else "local"
                    seen = sorted(set(names[name]))[:3]
                    uses = scopes.used[scope][name]
                    text = " | ".join(f"{n}: {lines[n - 1].strip()[:110]}" for n in seen)
                    rows.append(f"{file} {scope} {name}  [{kind} x{uses}] {text}")
        for name, seen in {**scopes.fields, **scopes.definitions}.items():
            if is_riddle(name):
                text = " | ".join(
                    f"{n}: {lines[n - 1].strip()[:100]}" for n in sorted(set(seen))[:3]
                )
                rows.append(f"* {name}  [definition or field] {file} {text}")
        for name in scopes.attributes:
            if is_riddle(name) and any(
                re.search(rf"\bself\.{name}\b\s*(:[^=]+)?=[^=]", line) for line in lines
            ):
                rows.append(f"* {name}  [attribute of self] {file}")
        print("\n".join(sorted(set(rows))))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list").add_argument("paths", nargs="+")
    applied = commands.add_parser("apply")
    applied.add_argument("table", type=Path)
    applied.add_argument("--write", action="store_true")
    applied.add_argument("--lenient", action="store_true", help="skip rows that rename nothing")
    arguments = parser.parse_args()
    if arguments.command == "list":
        show(arguments.paths)
        return 0
    return 1 if apply(arguments.table, arguments.write, arguments.lenient) else 0


if __name__ == "__main__":
    raise SystemExit(main())
