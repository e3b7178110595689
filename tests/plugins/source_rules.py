"""Reads source code without importing it: imports, forbidden calls, names of tests."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import attrs

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "sapwood"

ONLY_THROUGH_THE_ENVIRONMENT = (
    "datetime.date.today",
    "datetime.datetime.now",
    "datetime.datetime.today",
    "datetime.datetime.utcnow",
    "os._exit",
    "os.urandom",
    "random",
    "secrets",
    "time.monotonic",
    "time.monotonic_ns",
    "time.perf_counter",
    "time.perf_counter_ns",
    "time.time",
    "time.time_ns",
    "anyio.to_thread",
    "trio.to_thread",
    "uuid.uuid1",
    "uuid.uuid4",
)


def python_files(*folders: Path) -> list[Path]:
    """Return every Python file below the folders, in a fixed order."""
    return sorted(path for folder in folders for path in folder.rglob("*.py"))


def public_packages() -> list[str]:
    """Return `sapwood` and the dotted names of its packages that have no private part."""
    folders = [path.parent.relative_to(ROOT).parts for path in PACKAGE.rglob("__init__.py")]
    return sorted(".".join(parts) for parts in folders if not any(part.startswith("_") for part in parts))


@attrs.frozen
class Use:
    """A place where code reaches past the environment."""

    line: int
    name: str


def uses_past_the_environment(source: str) -> list[Use]:
    """Return where code uses time, randomness, ids, threads or process exit by itself.

    Imports alone do not count, nor do types in annotations.
    """
    finder = _UseFinder()
    finder.visit(ast.parse(source))
    return finder.uses


class _UseFinder(ast.NodeVisitor):
    def __init__(self) -> None:
        self.uses: list[Use] = []
        self._meaning: dict[str, str] = {}  # {local name: dotted path}

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            name = alias.asname or alias.name.partition(".")[0]
            self._meaning[name] = alias.name if alias.asname else name

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            self._meaning[alias.asname or alias.name] = f"{node.module}.{alias.name}"

    def visit_Name(self, node: ast.Name) -> None:
        self._report(node.lineno, self._meaning.get(node.id, ""))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        dotted = _dotted(node)
        if dotted is None:
            self.generic_visit(node)
        else:
            first, _, rest = dotted.partition(".")
            self._report(node.lineno, f"{self._meaning.get(first, '')}.{rest}")

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.visit(node.target)
        if node.value is not None:
            self.visit(node.value)

    def visit_arg(self, node: ast.arg) -> None:
        """Skip the annotation, the only child an argument has."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._visit_function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._visit_function(node)

    def _visit_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for part in (*node.decorator_list, node.args, *node.body):
            self.visit(part)

    def _report(self, line: int, dotted: str) -> None:
        for name in ONLY_THROUGH_THE_ENVIRONMENT:
            if dotted == name or dotted.startswith(f"{name}."):
                self.uses.append(Use(line, dotted))


def _dotted(node: ast.expr) -> str | None:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attribute):
            prefix = _dotted(value)
            return f"{prefix}.{attribute}" if prefix else None
        case _:
            return None


def foreign_private_imports(module: str, source: str) -> list[str]:
    """Return the private modules and names of other packages that a module of Sapwood imports.

    Args:
        module: Dotted name of the module; of a package's `__init__`, the name that ends in `.__init__`.
        source: Its code.
    """
    return [
        name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "sapwood"
        for alias in node.names
        if not _may_import(module, name := f"{node.module}.{alias.name}")
    ]


def _may_import(module: str, name: str) -> bool:
    parts = name.split(".")
    first_private = next((index for index, part in enumerate(parts) if part.startswith("_")), None)
    return first_private is None or f"{module}.".startswith(".".join(parts[:first_private]) + ".")


def imported_modules(source: str) -> set[str]:
    """Return the first part of every module that the code imports, wherever the import stands."""
    modules: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            modules.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            modules.add(node.module.partition(".")[0])
    return modules


def names_of_tests(source: str) -> Iterator[str]:
    """Yield the name of every test function and test method."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node.name


@attrs.frozen
class Reexport:
    """One name that a package's `__init__` imports."""

    module: str
    name: str
    alias: str | None


def reexports(init: str) -> list[Reexport]:
    """Return the names that the source of an `__init__` imports from Sapwood, private helpers left out."""
    return [
        Reexport(node.module or "", alias.name, alias.asname)
        for node in ast.parse(init).body
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "sapwood"
        for alias in node.names
        if not (alias.asname or alias.name).startswith("_")
    ]


def strangers_in_init(init: str) -> list[str]:
    """Return the statements of an `__init__` besides docstring, imports, dunder names and the call of publish."""
    return [
        ast.unparse(node)
        for node in ast.parse(init).body
        if not (
            isinstance(node, ast.Import | ast.ImportFrom)
            or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
            or (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).startswith("__"))
            or ast.unparse(node) == PUBLISH_CALL
        )
    ]


PUBLISH_IMPORT = "from sapwood._public import publish as _publish"
PUBLISH_CALL = "_publish(globals())"
