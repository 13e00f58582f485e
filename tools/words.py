"""Counts riddle words in identifiers and checks docstrings.

usage: python tools/words.py [ROOT ...]     # default: src lab/src tests lab/tests

Prints riddle words per 1,000 lines for each root and the files that have most. Ends with 1 if

- a root has more than `LIMIT`;
- a docstring begins with one of `BEGINNINGS` and is not in `EXCEPTIONS`;
- the first sentence of a public docstring below `SENTENCES` has no verb (`has_verb`).

Peers, measured the same way: torchtitan 1, mlx-lm 1, speculators 2, mini-sglang 3, kvpress 10.
"""

from __future__ import annotations

import ast
import collections
import re
import sys
from collections.abc import Iterator
from pathlib import Path

RIDDLES = frozenset((
    "told", "said", "asked", "found", "held", "own", "one", "kept", "shown", "taken", "wanted",
    "passage", "whoever", "theirs", "others", "beside", "behind", "most", "least", "says",
    "say", "heard", "hear", "trust", "given",
))  # fmt: skip
LIMIT = 5.0
BEGINNINGS = ("Of ", "The same", "Those ")
EXCEPTIONS: tuple[str, ...] = ()
"""`path:name` of docstrings that may begin so, or without a verb; ten at most."""
SENTENCES = ("src/sooner/",)
"""Where the first sentence of every public docstring needs a verb."""
FINITE = frozenset((
    "is", "are", "was", "were", "be", "been", "has", "have", "had", "do", "does", "did", "can",
    "cannot", "may", "might", "must", "will", "would", "shall", "should", "could", "need", "needs",
    "isn't", "aren't", "can't", "don't", "doesn't", "hasn't", "won't", "began", "gave",
    "made", "ran",
))  # fmt: skip
"""Forms that make a sentence wherever they are."""
VERBS = frozenset((
    "accept", "accumulate", "adapt", "add", "adjust", "allow", "append", "apply", "ask",
    "assign", "attend", "become", "begin", "belong", "bind", "bring", "build", "cancel",
    "carry", "check", "choose", "clear", "close", "cluster", "collect", "come", "commit",
    "compare", "compile", "complete", "compress", "compute", "connect", "consist", "contain",
    "continue", "contribute", "convert", "couple", "crop", "cross", "decide", "decode",
    "delete", "deliver", "depend", "describe", "detach", "differ", "discard", "divide", "embed",
    "emit", "encode", "ensure", "enter", "estimate", "evict", "execute", "expand", "explain",
    "extend", "extract", "fail", "fall", "fetch", "fill", "filter", "find", "finish", "fit",
    "follow", "forbid", "forget", "forward", "fuse", "gather", "generate", "get", "give", "go",
    "group", "handle", "hear", "hide", "hold", "honour", "ignore", "import", "initialise", "insert",
    "install", "interrupt", "join", "keep", "kill", "know", "launch", "lay", "lead", "learn",
    "leave", "let", "lie", "limit", "listen", "load", "lock", "log", "lose", "make", "map",
    "match", "measure", "merge", "move", "normalise", "notice", "notify", "observe", "offer",
    "open", "override", "overwrite", "own", "pack", "parse", "pass", "pause", "pay", "permute",
    "predict", "prefill", "prepare", "produce", "propose", "prune", "pull", "push", "put",
    "quantise", "raise", "reach", "receive", "recognise", "refer", "refuse", "register",
    "reject", "release", "reload", "remove", "rename", "render", "renew", "repeat", "replace",
    "replay", "report", "require", "reserve", "reset", "resolve", "restore", "resume", "reuse",
    "reverse", "roll", "rotate", "save", "say", "scramble", "search", "see", "select", "send",
    "separate", "serve", "skip", "sleep", "sort", "spell", "split", "stay", "store", "strip",
    "submit", "swap", "take", "tell", "train", "transform", "translate", "try", "turn",
    "unpack", "update", "use", "validate", "verify", "visit", "wait", "wake", "want", "warm",
    "warn", "watch", "weigh", "wrap", "yield",
))  # fmt: skip
"""Verbs that are hardly ever nouns: they count first, in third person, and in relative clauses."""
NOUN_VERBS = frozenset((
    "answer", "back", "block", "call", "cause", "change", "copy", "cost", "count", "cut",
    "draft", "draw", "drop", "end", "fold", "format", "guard", "hash", "hook", "index", "judge",
    "lead", "list", "look", "mark", "mean", "name", "note", "number", "pad", "pair", "pick",
    "place", "plan", "point", "print", "process", "rank", "read", "record", "request", "return",
    "round", "run", "sample", "scale", "schedule", "score", "set", "shape", "share", "show",
    "stand", "start", "state", "stop", "stream", "sum", "support", "test", "time", "trace",
    "wait", "work", "write",
))  # fmt: skip
"""Verbs that are nouns as well: they count first, unless "of" follows, and in relative clauses."""
RELATIVES = frozenset(("that", "which", "who", "whose", "what", "where", "when", "whether"))
ABBREVIATIONS = re.compile(r"\b(et al|e\.g|i\.e|cf|vs|eq|p)\.")


def is_riddle(name: str) -> bool:
    """Whether an identifier holds a word of `RIDDLES`."""
    return any(part in RIDDLES for part in re.split(r"_+", name.lower()))


def identifiers(tree: ast.AST) -> Iterator[str]:
    """Yields each identifier of a module as often as it stands there."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name


def docstrings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yields the line and the text of each docstring, those of attributes included."""
    for node in ast.walk(tree):
        for child in (
            getattr(node, "body", ()) if not isinstance(node, ast.Lambda | ast.IfExp) else ()
        ):
            if (
                isinstance(child, ast.Expr)
                and isinstance(child.value, ast.Constant)
                and isinstance(child.value.value, str)
            ):
                yield child.lineno, child.value.value.strip()


def third_person(verb: str) -> str:
    """Returns a verb's form after "it"."""
    if verb.endswith(("s", "x", "z", "ch", "sh", "o")):
        return f"{verb}es"
    return f"{verb[:-1]}ies" if re.search("[^aeiou]y$", verb) else f"{verb}s"


def first_sentence(docstring: str) -> str:
    """Returns a docstring's text up to its first full stop or blank line."""
    paragraph = ABBREVIATIONS.sub(r"\1", docstring.strip().split("\n\n")[0])
    return re.split(r"[.!?](?:\s|$)", paragraph, maxsplit=1)[0]


SURE = VERBS | {third_person(verb) for verb in VERBS}
UNSURE = NOUN_VERBS | {third_person(verb) for verb in NOUN_VERBS}
THIRD = {third_person(verb) for verb in VERBS}


def has_verb(docstring: str) -> bool:
    """Whether the first sentence has a verb, as far as lists of words can decide it."""
    text = re.sub(r"`[^`]*`", "X", first_sentence(docstring))
    words = [word.lower() for word in re.findall(r"[A-Za-z][A-Za-z'’]*", text)]
    if not words:
        return False
    if words[0] in SURE or (words[0] in UNSURE and words[1:2] != ["of"]):
        return True
    if any(word in FINITE or word in THIRD for word in words):
        return True
    clause = next((at for at, word in enumerate(words) if word in RELATIVES), len(words))
    return any(word in SURE | UNSURE for word in words[clause + 1 :])


def public_docstrings(tree: ast.AST, prefix: str = "") -> Iterator[tuple[int, str, str]]:
    """Yields line, name and docstring of public functions and classes, methods included."""
    for node in getattr(tree, "body", ()):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if node.name.startswith("_"):
            continue
        if docstring := ast.get_docstring(node):
            yield node.lineno, prefix + node.name, docstring
        if isinstance(node, ast.ClassDef):
            yield from public_docstrings(node, f"{prefix}{node.name}.")


def read(root: str) -> Iterator[tuple[Path, str, ast.Module]]:
    """Yields path, text and syntax tree of each Python file under `root`."""
    for path in sorted(Path(root).rglob("*.py")):
        text = path.read_text()
        yield path, text, ast.parse(text)


def main(roots: list[str]) -> int:
    """Prints the counts; returns 1 if a limit is exceeded."""
    failed = False
    for root in roots or ["src", "lab/src", "tests", "lab/tests"]:
        words: collections.Counter[str] = collections.Counter()
        files: list[tuple[int, Path]] = []
        lines = 0
        for path, text, tree in read(root):
            lines += text.count("\n")
            riddles = [name for name in identifiers(tree) if is_riddle(name)]
            words.update(riddles)
            files.append((len(riddles), path))
            for line, docstring in docstrings(tree):
                if docstring.startswith(BEGINNINGS) and f"{path}:{line}" not in EXCEPTIONS:
                    failed = True
                    print(f"{path}:{line}: the docstring begins with {docstring[:40]!r}")
            if not path.as_posix().startswith(SENTENCES):
                continue
            for line, name, docstring in public_docstrings(tree):
                if not has_verb(docstring) and f"{path}:{name}" not in EXCEPTIONS:
                    failed = True
                    print(f"{path}:{line}: {name}: no verb in {first_sentence(docstring)!r}")
        rate = 1000 * sum(words.values()) / max(lines, 1)
        failed |= rate > LIMIT
        common = ", ".join(f"{word} {count}" for word, count in words.most_common(8))
        print(f"{root}: {rate:.1f} riddle words per 1,000 of {lines} lines; {common}")
        for count, path in sorted(files, reverse=True)[:5]:
            if count and rate > LIMIT:
                print(f"   {count:4d}  {path}")
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
