"""Sentences for people are made in three places: `text/`, `checks/` and raised errors."""

import ast
import re
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[3] / "hbatune"

ROOMS_WITH_TEXT = ("text", "checks", "cli", "report")
"""`cli` has the help of its options, and `report` the headings and captions of its pages."""

REFERENCE_TEXT = {
    "boot/compile.py": "comments in the udev rules, which say what each part does",
    "boot/conditions.py": "comments in the udev rules",
    "boot/lines.py": "comments in the udev rules",
    "facts/families": "notes on a driver, next to its sources; docs/families.md is made of them",
    "facts/kernel_log.py": "patterns of the kernel's own messages",
    "operations/measured_rules.py": "comments in the rules that autotune writes",
    "policy/schema.py": "the allowed values of a shape, which an error quotes",
    "probe/replay.py": "the first line of fio's logs",
    "settings/setting.py": "the allowed values of a format, which an error quotes",
    "settings/table.py": "a setting's description, next to its limits; docs/settings.md shows it",
    "snapshot/anonymous.py": "the words that are public",
}
"""Files and folders whose texts are data about an entry, with the reason."""

WORDS_OF_A_SENTENCE = 3
_WORD = re.compile(r"[A-Za-z][a-z']*[,.:;]?")


def make_literal(node: ast.AST) -> str | None:
    """Return the text of a string or an f-string."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(
                str(part.value) if isinstance(part, ast.Constant) else " {} " for part in values
            )
    return None


def find_name(node: ast.AST) -> str:
    """Return the last part of a name such as ``errors.UsageError``, or an empty text."""
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def is_error(node: ast.AST) -> bool:
    """Return whether a node raises or makes an exception, or is the class of one.

    ``Meta`` has the form of a value, which the errors of a configuration file quote.
    """
    match node:
        case ast.Raise():
            return True
        case ast.Call(func=func, args=args):
            name = find_name(func)
            # An object that gets the class of an error raises this error.
            names = [name, *(find_name(item) for item in args if name[:1].isupper())]
            return (
                name == "Meta"
                or name.startswith("fail")
                or any(item.lower().endswith(("error", "exception")) for item in names)
            )
        case ast.ClassDef(name=name):
            return name.endswith("Error")
    return False


def is_enum(node: ast.AST) -> bool:
    """Return whether a node is an enumeration, whose values name its members."""
    return isinstance(node, ast.ClassDef) and any("Enum" in ast.unparse(b) for b in node.bases)


def find_error_parts(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """Yield a function's errors, and the values of its variables that they contain."""
    errors = [node for node in ast.walk(function) if is_error(node)]
    yield from errors
    names = {name.id for node in errors for name in ast.walk(node) if isinstance(name, ast.Name)}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign | ast.AugAssign | ast.NamedExpr):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(item, ast.Name) and item.id in names for item in targets):
                yield node.value


def returns_text(node: ast.AST) -> bool:
    """Return whether a node is a function that returns only text."""
    if not isinstance(node, ast.FunctionDef) or node.returns is None:
        return False
    types = set(re.findall(r"\w+", ast.unparse(node.returns)))
    return "str" in types <= {"str", "None", "Iterator", "tuple"}


def find_calls(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the names of the functions that these nodes call, without methods."""
    calls = (node for part in nodes for node in ast.walk(part) if isinstance(node, ast.Call))
    return {call.func.id for call in calls if isinstance(call.func, ast.Name)}


@cache
def find_helpers() -> frozenset[str]:
    """Return the names of text functions that errors call, and of those that these call."""
    helpers: set[str] = set()
    texts: dict[str, set[str]] = {}
    for tree in parse_modules().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                helpers |= find_calls(find_error_parts(node))
                if returns_text(node):
                    texts.setdefault(node.name, set()).update(find_calls([node]))
    added = helpers
    while added:
        added = {name for caller in added for name in texts.get(caller, ())} - helpers
        helpers |= added
    return frozenset(helpers)


@cache
def parse_modules() -> dict[str, ast.Module]:
    """Return the modules by their path in the package."""
    return {
        str(path.relative_to(PACKAGE)): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(PACKAGE.rglob("*.py"))
    }


def find_sentences(tree: ast.Module, helpers: Collection[str] = ()) -> Iterator[tuple[int, str]]:
    """Yield the line and text of each literal with several words outside errors and docstrings.

    The texts of ``helpers``, functions that errors call, are parts of errors.
    """
    skipped: set[int] = set()
    for node in ast.walk(tree):
        parts: Iterable[ast.AST] = ()
        is_helper = returns_text(node) and getattr(node, "name", "") in helpers
        if is_error(node) or is_enum(node) or is_helper:
            parts = [node]
        elif isinstance(node, ast.FunctionDef):
            parts = find_error_parts(node)
        elif isinstance(node, ast.JoinedStr):
            skipped |= {id(part) for part in node.values}
        elif isinstance(node, ast.Expr) and make_literal(node.value) is not None:
            skipped.add(id(node.value))
        skipped |= {id(child) for part in parts for child in ast.walk(part)}
    for node in ast.walk(tree):
        text = None if id(node) in skipped else make_literal(node)
        if text is None or text.startswith(("#!", "/")) or text.endswith("*"):
            continue  # a script, a path or a glob
        words = [word for word in text.split() if _WORD.fullmatch(word)]
        if isinstance(node, ast.expr) and len(words) >= WORDS_OF_A_SENTENCE:
            yield node.lineno, text


def test_sentences_are_made_in_three_places() -> None:
    elsewhere = []
    for name, tree in parse_modules().items():
        if name.startswith((*(f"{room}/" for room in ROOMS_WITH_TEXT), *REFERENCE_TEXT)):
            continue
        for line, text in find_sentences(tree, find_helpers()):
            elsewhere.append(f"{name}:{line}: {text!r}")
    assert elsewhere == []


def test_sentence_outside_is_found() -> None:
    tree = ast.parse(
        'def f():\n    """Not this docstring."""\n    raise ValueError("not this error")\n'
        'reason = f"{disk} takes at most {limit}"\nname = "nr_requests"\n'
    )
    assert list(find_sentences(tree)) == [(4, " {}  takes at most  {} ")]


def test_error_helper_is_part_of_error() -> None:
    tree = ast.parse('def describe() -> str:\n    return "more than the disk takes"\n')
    assert list(find_sentences(tree, ["describe"])) == []
    assert list(find_sentences(tree)) == [(2, "more than the disk takes")]
