"""Mutants: the small changes of a module that a test must notice.

| operator     | change                                                                                     |
|--------------|--------------------------------------------------------------------------------------------|
| `comparison` | `<` and `<=`, `>` and `>=`, `==` and `!=`, `is` and `is not`, `in` and `not in` swap       |
| `condition`  | a test of `if`, `while`, `x if y else z`, a comprehension or a `case` is negated           |
| `boolean`    | `and` and `or` swap; `not x` becomes `x`                                                   |
| `arithmetic` | `+` and `-`, `*` and `/`, `%` and `*`, `//` and `*` swap, `**` becomes `*`; `-x` becomes `x` |
| `constant`   | a number grows by one, `True` and `False` swap, a text or bytes is another one             |
| `statement`  | a call, an assignment to a part, a `del`, `raise`, `yield` or `continue` is left out       |
| `return`     | `return x` returns None                                                                    |
| `except`     | a handler re-raises at once; one of its exceptions is not caught                           |
| `function`   | `min` and `max`, `any` and `all` swap; `reversed` and `sorted` keep the order              |

Not changed, for no test could or should tell: annotations, type variables and aliases, `cast`, protocols and
abstract bodies, decorators, docstrings, `assert`, the text of errors and f-strings, and how an object shows itself
(`__repr__`, `format_state`).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

import attrs

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef

COMPARISONS: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ARITHMETIC: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Mod: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
FUNCTIONS: Final = {
    "min": "max",
    "max": "min",
    "any": "all",
    "all": "any",
    "reversed": "list",
    "sorted": "list",
}
TYPE_ONLY_CALLS: Final = frozenset({"TypeVar", "TypeVarTuple", "ParamSpec", "NewType", "cast"})
SHOWN_ONLY: Final = frozenset({"__repr__", "__str__", "format_state"})
# Errors that are also made without `raise`; what they are given is text for people.
ERRORS: Final = frozenset({"InvalidChildSpec", "InvalidKey", "InvalidOption", "UnhandledRequest"})
NEGATED_BY_COMPARISON: Final = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)


@attrs.frozen(eq=False)
class Mutant:
    """One change of one module, which can be made in its tree and taken back.

    Attributes:
        file: The module, relative to the root of the project.
        line: Line of what is changed.
        column: Its column.
        lines: First and last line of the statement that it is in, or of its head.
        operator: Kind of the change, see the table.
        where: Qualified name of the outermost function that it is in; empty at module or class level.
        old: The code that is changed.
        new: What stands in its place.
    """

    file: str
    line: int
    column: int
    lines: tuple[int, int]
    operator: str
    where: str
    old: str
    new: str
    _put: Callable[[ast.AST], None]
    _original: ast.AST
    _changed: ast.AST

    @property
    def id(self) -> str:
        """A name that stays the same as long as the module does."""
        return f"{self.file}:{self.line}:{self.column}:{self.operator}:{self.new}"

    @property
    def change(self) -> str:
        """The change as one line."""
        return f"{self.old} → {self.new}"

    def apply(self) -> None:
        """Change the tree that the mutant was found in."""
        self._put(ast.fix_missing_locations(ast.copy_location(self._changed, self._original)))

    def undo(self) -> None:
        """Take the change back."""
        self._put(self._original)


def mutants_of(tree: ast.Module, file: str) -> list[Mutant]:
    """Return all mutants of a module, by line."""
    finder = _Finder(file)
    finder.visit(tree)
    return sorted(finder.found, key=lambda mutant: (mutant.line, mutant.column))


class _Finder:
    """Walks a tree and notes the mutants of every node, with the place that each node stands in."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.found: list[Mutant] = []
        self._scopes: list[str] = []
        self._function = ""
        self._lines = (0, 0)

    # --- walking ----------------------------------------------------------------------------------

    def visit(self, node: ast.AST, put: Callable[[ast.AST], None] | None = None) -> None:
        outer = self._lines
        if isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case):
            self._lines = _lines(node)
        self._visit(node, put)
        self._lines = outer

    def _visit(self, node: ast.AST, put: Callable[[ast.AST], None] | None) -> None:
        if put is not None and not _is_for_types(node):
            for operator, changed in _changes(node):
                self._note(node, put, operator, changed)
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._visit_function(node)
            case ast.ClassDef():
                if not any(_name(base) == "Protocol" for base in node.bases):
                    self._in_scope(node.name, node.body)
            case _ if not _is_fixed(node) and not _is_for_types(node):
                self._visit_fields(node)
            case _:
                pass

    def _visit_function(self, node: Function) -> None:
        if node.name in SHOWN_ONLY or any(_name(decorator) == "overload" for decorator in node.decorator_list):
            return
        # Default values are evaluated where the function is made, so they belong to what is around it.
        self._visit_list(node.args.defaults)
        self._visit_list(node.args.kw_defaults)
        outer, whole = self._function, ".".join([*self._scopes, node.name])
        self._function = outer or whole
        self._in_scope(node.name, node.body)
        self._function = outer

    def _in_scope(self, name: str, body: list[ast.stmt]) -> None:
        self._scopes.append(name)
        self._visit_list(body)
        self._scopes.pop()

    def _visit_fields(self, node: ast.AST) -> None:
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns") or (isinstance(node, ast.AugAssign) and field == "op"):
                continue
            if isinstance(value, list):
                self._visit_list(value)
            elif isinstance(value, ast.AST):
                self.visit(value, _setter(node, field))

    def _visit_list(self, nodes: list[Any]) -> None:
        for index, node in enumerate(nodes):
            if isinstance(node, ast.AST) and not _is_docstring(node):
                self.visit(node, _item_setter(nodes, index))

    def _note(self, node: ast.AST, put: Callable[[ast.AST], None], operator: str, changed: ast.AST) -> None:
        line, column = _line(node), getattr(node, "col_offset", 0)
        old, new = _shorten(_code(node)), _shorten(_code(changed))
        if old == new:
            return
        where = self._function
        mutant = Mutant(self.file, line, column, self._lines, operator, where, old, new, put, node, changed)
        self.found.append(mutant)


def _line(node: ast.AST) -> int:
    match node:
        case ast.match_case(pattern=inner) | ast.comprehension(target=inner):
            return inner.lineno
        case ast.expr() | ast.stmt() | ast.ExceptHandler():
            return node.lineno
        case _:
            return 0


def _lines(node: ast.AST) -> tuple[int, int]:
    first = _line(node)
    body: list[ast.stmt] = getattr(node, "body", None) or []
    last = body[0].lineno - 1 if body else getattr(node, "end_lineno", first)
    return first, max(first, last)


def _code(node: ast.AST) -> str:
    if isinstance(node, ast.match_case):
        return ast.unparse(ast.Match(ast.Name("_", ast.Load()), [node])).removeprefix("match _:")
    return ast.unparse(node)


def _setter(node: ast.AST, field: str) -> Callable[[ast.AST], None]:
    return lambda changed: setattr(node, field, changed)


def _item_setter(nodes: list[Any], index: int) -> Callable[[ast.AST], None]:
    def put(changed: ast.AST) -> None:
        nodes[index] = changed

    return put


# ---------------------------------------------------------------- what may change


def _name(node: ast.AST | None) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Call(func=function) | ast.Subscript(value=function):
            return _name(function)
        case _:
            return ""


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and _name(node.test) == "TYPE_CHECKING"


def _is_fixed(node: ast.AST) -> bool:
    """Say whether nothing inside a node is changed."""
    match node:
        case ast.Assert() | ast.Raise() | ast.JoinedStr() | ast.Import() | ast.ImportFrom():
            return True
        case ast.AnnAssign(annotation=annotation):
            return _name(annotation) == "TypeAlias"
        case ast.Call(func=function):
            name = _name(function)
            return name in TYPE_ONLY_CALLS or name in ERRORS
        case ast.Assign(targets=[ast.Name(id="__slots__" | "__all__")]):
            return True
        case _:
            return False


def _shorten(code: str) -> str:
    line = " ".join(code.split())
    return line if len(line) <= 90 else f"{line[:87]}..."


# ---------------------------------------------------------------- the changes


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    match node:
        case ast.expr():
            yield from _expression_changes(node)
        case ast.stmt():
            yield from _statement_changes(node)
        case ast.ExceptHandler():
            yield from _handler_changes(node)
        case ast.match_case(guard=ast.expr() as guard):
            changed = ast.match_case(node.pattern, _negated(guard), node.body)
            yield "condition", changed
        case ast.comprehension(target=target, iter=source, ifs=ifs, is_async=is_async):
            for index, test in enumerate(ifs):
                if not _is_negated_otherwise(test):
                    others = [*ifs[:index], _negated(test), *ifs[index + 1 :]]
                    yield "condition", ast.comprehension(target, source, others, is_async)
        case _:
            pass


def _expression_changes(node: ast.expr) -> Iterator[tuple[str, ast.AST]]:
    match node:
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            for index, comparison in enumerate(ops):
                others = [*ops[:index], COMPARISONS[type(comparison)](), *ops[index + 1 :]]
                yield "comparison", ast.Compare(left, others, comparators)
        case ast.BoolOp(op=ast.And(), values=values):
            yield "boolean", ast.BoolOp(ast.Or(), values)
        case ast.BoolOp(op=ast.Or(), values=values):
            yield "boolean", ast.BoolOp(ast.And(), values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "boolean", operand
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            yield "arithmetic", operand
        case ast.BinOp(left=left, op=arithmetic, right=right) if type(arithmetic) in ARITHMETIC:
            yield "arithmetic", ast.BinOp(left, ARITHMETIC[type(arithmetic)](), right)
        case ast.IfExp(test=test, body=body, orelse=orelse) if not _is_negated_otherwise(test):
            yield "condition", ast.IfExp(_negated(test), body, orelse)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords) if name in FUNCTIONS:
            rest = [] if FUNCTIONS[name] == "list" else keywords
            yield "function", ast.Call(ast.Name(FUNCTIONS[name], ast.Load()), args, rest)
        case ast.Constant(value=value):
            changed = _changed_constant(value)
            if changed is not None:
                yield "constant", ast.Constant(changed)
        case _:
            pass


def _changed_constant(value: object) -> bool | float | str | bytes | None:
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str():
            return f"{value}!"
        case bytes():
            return value + b"!"
        case _:
            return None


def _is_negated_otherwise(test: ast.expr) -> bool:
    """Say whether the negation of a test is another mutant already."""
    match test:
        case ast.UnaryOp(op=ast.Not()):
            return True
        case ast.Compare(ops=[comparison]):
            return isinstance(comparison, NEGATED_BY_COMPARISON)
        case _:
            return False


def _negated(test: ast.expr) -> ast.expr:
    return ast.copy_location(ast.UnaryOp(ast.Not(), test), test)


def _statement_changes(node: ast.stmt) -> Iterator[tuple[str, ast.AST]]:
    match node:
        case ast.If(test=test, body=body, orelse=orelse) if not _is_negated_otherwise(test):
            yield "condition", ast.If(_negated(test), body, orelse)
        case ast.While(test=test, body=body, orelse=orelse) if not _is_negated_otherwise(test):
            yield "condition", ast.While(_negated(test), body, orelse)
        case ast.Expr(value=ast.Yield()):
            pass  # a generator that yields nothing is another kind of function
        case ast.Expr() | ast.Delete() | ast.Raise() | ast.Continue():
            yield "statement", ast.Pass()
        case ast.Assign(targets=targets) if not any(isinstance(target, ast.Name | ast.Tuple) for target in targets):
            yield "statement", ast.Pass()
        case ast.AugAssign(target=target, op=arithmetic, value=value):
            yield "statement", ast.Pass()
            if type(arithmetic) in ARITHMETIC and not isinstance(value, ast.List | ast.ListComp):
                yield "arithmetic", ast.AugAssign(target, ARITHMETIC[type(arithmetic)](), value)
        case ast.Return(value=ast.expr() as value) if not _is_nothing(value):
            yield "return", ast.Return(ast.Constant(None))
        case _:
            pass


def _is_nothing(value: ast.expr) -> bool:
    """Say whether a value is None, or a truth that changes as a constant already."""
    return isinstance(value, ast.Constant) and (value.value is None or isinstance(value.value, bool))


def _handler_changes(node: ast.ExceptHandler) -> Iterator[tuple[str, ast.AST]]:
    if [type(statement) for statement in node.body] != [ast.Raise]:
        yield "except", ast.ExceptHandler(node.type, node.name, [ast.Raise()])
    if isinstance(node.type, ast.Tuple):
        for index in range(len(node.type.elts)):
            others = [*node.type.elts[:index], *node.type.elts[index + 1 :]]
            yield "except", ast.ExceptHandler(ast.Tuple(others, ast.Load()), node.name, node.body)
