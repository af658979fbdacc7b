"""Every way to change one symbol of a Python file: the list that `mutate.py` runs the tests
against.

A mutation replaces a span of bytes of the source, so that the rest of the file stays as it is.
Docstrings, annotations, asserts, f-strings and what an error says are left alone.
"""

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

COMPARE = {
    ast.Eq: [ast.NotEq], ast.NotEq: [ast.Eq], ast.In: [ast.NotIn], ast.NotIn: [ast.In], ast.Is:
    [ast.IsNot], ast.IsNot: [ast.Is], ast.Lt: [ast.LtE, ast.GtE], ast.LtE: [ast.Lt, ast.Gt],
    ast.Gt: [ast.GtE, ast.LtE], ast.GtE: [ast.Gt, ast.Lt],
}  # fmt: skip
OPERATOR = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult,
    ast.FloorDiv: ast.Div, ast.Mod: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
RENAME = {
    "log1p": "log", "log": "log1p", "exp": "expm1", "logsumexp": "amax", "sum": "mean", "mean":
    "sum", "amax": "amin", "max": "min", "min": "max", "argmax": "argmin", "any": "all", "all":
    "any", "zeros_like": "ones_like", "ones_like": "zeros_like", "zeros": "ones", "softmax":
    "log_softmax", "log_softmax": "softmax", "sigmoid": "tanh", "fmax": "fmin", "sqrt": "square",
    "index_add": "index_copy", "cumsum": "cumprod", "isfinite": "isnan", "sorted": "list",
    "empty": "ones", "append": "remove", "isin": "not_equal",
}  # fmt: skip
WORDS = {"amax": "amin", "none": "mean", "-inf": "inf"}
COMMUTES = {"where", "promote_types", "max", "min"}  # or has its own change
MODULES = {"torch", "F", "np", "math", "self", "Groups"}


@dataclass(frozen=True)
class Mutation:
    file: str  # relative to the package
    function: str
    line: int
    before: str  # the source lines changed, joined
    after: str  # the same lines, changed
    source: bytes  # of the whole file, changed
    statement: str = ""  # at the top of the module: the assignment, changed


def mutations(file: str, source: bytes) -> list[Mutation]:
    """All mutations of a file, in order of their place."""
    starts = [0]
    for text in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(text))
    found, known = [], {ast.dump(ast.parse(source))}
    for function, node, text in _changes(ast.parse(source)):
        if function.endswith("<class>") and not file.startswith("strategies/"):
            continue
        begin, end = (
            starts[node.lineno - 1] + node.col_offset,
            starts[node.end_lineno - 1] + node.end_col_offset,
        )
        changed = source[:begin] + text.encode() + source[end:]
        if (
            tree := ast.dump(ast.parse(changed))
        ) not in known:  # other quotes, or two equal arguments changed places
            known.add(tree)
            first, last = node.lineno, node.end_lineno
            before = source[starts[first - 1] : starts[last]]
            after = changed[starts[first - 1] : starts[last] + len(changed) - len(source)]
            statement = ""
            if function.endswith(("<module>", "<class>")):
                statement = _assignment(changed, first, function)
            found.append(
                Mutation(
                    file, function, first, _one_line(before), _one_line(after), changed, statement
                )
            )
    return sorted(found, key=lambda m: m.line)


def _assignment(source: bytes, line: int, place: str) -> str:
    """The assignment at a line, of the module or of one of its classes."""
    body = ast.parse(source).body
    if place.endswith("<class>"):
        name = place.split(".")[0]
        body = next(n.body for n in body if isinstance(n, ast.ClassDef) and n.name == name)
    return next(ast.unparse(node) for node in body if node.lineno <= line <= node.end_lineno)


def _one_line(text: bytes) -> str:
    return " ".join(text.decode().split())


def _changes(tree: ast.Module) -> Iterator[tuple[str, ast.AST, str]]:
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value:
            for child, text in _walk(node.value):
                yield "<module>", child, text
        for inner in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(inner, ast.Assign) and isinstance(inner.value, ast.Constant):
                for text in _constant(inner.value.value):
                    yield f"{node.name}.<class>", inner.value, text
    for function, node in _functions(tree):
        for default in [*node.args.defaults, *(d for d in node.args.kw_defaults if d)]:
            for child, text in _walk(default):
                yield function, child, text
        named = {a.arg for a in [*node.args.args, *node.args.kwonlyargs]}
        body = node.body[1:] if ast.get_docstring(node) is not None else node.body
        for statement in body:
            for child, text in _statement(statement, named):
                yield function, child, text


def _functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef):
            yield prefix + node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{prefix}{node.name}.")


def _targets(node: ast.stmt) -> list[ast.expr]:
    return node.targets if isinstance(node, ast.Assign) else [node.target]


def _statement(node: ast.stmt, named: set[str]) -> Iterator[tuple[ast.AST, str]]:
    """Changes of a statement and all it holds. `named` gathers the names that have a value already:
    only then an assignment may go.
    """
    if isinstance(node, ast.Assert):
        return
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
        targets = [e for t in _targets(node) for e in getattr(t, "elts", [t])]
        if not (names := {t.id for t in targets if isinstance(t, ast.Name)}) or names <= named:
            yield node, _deleted(node)
        named |= names
    elif isinstance(node, ast.Raise | ast.Expr | ast.Break | ast.Continue):
        yield node, _deleted(node)
    elif (
        isinstance(node, ast.Return)
        and node.value
        and not (isinstance(node.value, ast.Constant) and node.value.value is None)
    ):
        yield node, "return None"
    if isinstance(node, ast.AugAssign) and (other := OPERATOR.get(type(node.op))):
        yield node, _with(node, op=other())
    if isinstance(node, ast.If):
        yield node.test, "True"
        yield node.test, "False"
    if isinstance(node, ast.With):
        for item in node.items:
            if item.optional_vars is None:
                yield item.context_expr, '__import__("contextlib").nullcontext()'
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "exc") or isinstance(node, ast.FunctionDef):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.stmt):
                yield from _statement(child, named)
            elif isinstance(child, ast.withitem):
                yield from _walk(child.context_expr)
            elif isinstance(child, ast.expr):
                yield from _walk(child)


def _deleted(node: ast.stmt) -> str:
    return f"pass  # without: {ast.unparse(node).splitlines()[0]}"


def _with(node: ast.AST, **fields) -> str:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    text = ast.unparse(changed)
    return (
        f"({text})"
        if isinstance(node, ast.BinOp | ast.Compare | ast.BoolOp | ast.UnaryOp | ast.IfExp)
        else text
    )


def _walk(node: ast.expr) -> Iterator[tuple[ast.AST, str]]:
    """Changes of an expression and of all it holds."""
    if isinstance(node, ast.JoinedStr):
        return
    yield from ((node, text) for text in _expression(node))
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            yield from _walk(child)
        elif isinstance(child, ast.keyword):
            yield from _walk(child.value)
        elif isinstance(child, ast.comprehension):
            for part in (child.iter, *child.ifs):
                yield from _walk(part)


def _expression(node: ast.expr) -> Iterator[str]:
    match node:
        case ast.Constant():
            yield from _constant(node.value)
        case ast.Compare():
            for i, op in enumerate(node.ops):
                for other in COMPARE.get(type(op), []):
                    yield _with(node, ops=[*node.ops[:i], other(), *node.ops[i + 1 :]])
        case ast.BinOp() if other := OPERATOR.get(type(node.op)):
            yield _with(node, op=other())
        case ast.BoolOp():
            yield _with(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
            yield from (
                _with(node, values=node.values[:i] + node.values[i + 1 :])
                for i in range(len(node.values))
                if len(node.values) > 2
            )
            if len(node.values) == 2:
                yield from (f"({ast.unparse(value)})" for value in node.values)
        case ast.UnaryOp():
            yield f"({ast.unparse(node.operand)})"
        case ast.IfExp():
            yield f"({ast.unparse(node.body)})"
            yield f"({ast.unparse(node.orelse)})"
        case ast.Slice():
            yield from (
                _with(node, **{bound: None})
                for bound in ("lower", "upper", "step")
                if getattr(node, bound)
            )
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp() if any(
            g.ifs for g in node.generators
        ):
            yield _with(node, generators=[_without_ifs(g) for g in node.generators])
        case ast.Call():
            yield from _call(node)


def _without_ifs(generator: ast.comprehension) -> ast.comprehension:
    return ast.comprehension(generator.target, generator.iter, [], generator.is_async)


def _constant(value: object) -> Iterator[str]:
    if isinstance(value, bool):
        yield str(not value)
    elif isinstance(value, int):
        yield str(value + 1)
        yield f"({value - 1})"
    elif isinstance(value, float):
        small = 0 < abs(value) < 1e-3
        yield repr(value * 1e6 if small else value + 1)
        yield repr(value * 1e-6 if small else value / 2 or -1.0)
    elif isinstance(value, str):
        yield repr(WORDS.get(value, value + "_"))


def _call(node: ast.Call) -> Iterator[str]:
    function, swap = node.func, None
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if name in RENAME:
        other = copy.copy(function)
        setattr(other, "attr" if isinstance(function, ast.Attribute) else "id", RENAME[name])
        yield _with(node, func=other)
    for i in range(len(node.keywords)):
        yield _with(node, keywords=node.keywords[:i] + node.keywords[i + 1 :])
    if isinstance(function, ast.Attribute) and getattr(function.value, "id", "") not in MODULES:
        yield f"({ast.unparse(function.value)})"
        if name == "where":
            swap = ast.UnaryOp(ast.Invert(), node.args[0])
            yield _with(node, args=[swap, *node.args[1:]])
    elif name == "where" and len(node.args) == 3:
        yield _with(node, args=[node.args[0], node.args[2], node.args[1]])
    elif len(node.args) == 1 and not node.keywords and not isinstance(node.args[0], ast.Starred):
        yield f"({ast.unparse(node.args[0])})"
    if name not in COMMUTES:
        for i, (a, b) in enumerate(pairwise(node.args)):
            if not isinstance(a, ast.Starred) and not isinstance(b, ast.Starred):
                yield _with(node, args=[*node.args[:i], b, a, *node.args[i + 2 :]])
