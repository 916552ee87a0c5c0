"""RestrictedPython's rules for the cells of a context: a guard rail for code that means well, and not a wall.

Names and attributes that begin with an underscore are refused, and so are imports but a few; builtins that reach files,
frames or code are not there. What has found a way around it is an ordinary process with the rights of its sandbox, so
anything else needs a wall around that.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import operator
import os
import types
from typing import Any, Callable, Dict, FrozenSet, List, Sequence, Tuple

from .hosttools import Tool, ToolError, Tools

RESTRICTED = "restricted"
"""The language of such a context."""

MORE = "ATOLL_RESTRICTED_MODULES"
"""The environment variable of a context that names further modules, with commas in between."""

_HARMLESS = (
    "array base64 bisect calendar cmath collections collections.abc copy csv dataclasses datetime decimal difflib enum "
    "fractions functools hashlib heapq html itertools json math numbers random re statistics string textwrap time "
    "typing unicodedata zlib"
)
MODULES = frozenset(_HARMLESS.split())

# Each of these runs text as code, or reads an attribute that is named by text.
_TREACHEROUS = frozenset(
    [
        ("collections", "UserString"),
        ("dataclasses", "make_dataclass"),
        ("enum", "global_enum"),
        ("functools", "singledispatch"),
        ("functools", "singledispatchmethod"),
        ("functools", "update_wrapper"),
        ("functools", "wraps"),
        ("operator", "attrgetter"),
        ("operator", "methodcaller"),
        ("string", "Formatter"),
        ("typing", "ForwardRef"),
        ("typing", "TypedDict"),
        ("typing", "get_type_hints"),
        ("typing", "evaluate_forward_ref"),
    ]
)

_ALSO = (
    "all any ascii bin bytearray classmethod dict enumerate filter format frozenset iter list map max min next object "
    "print property reversed set staticmethod sum TimeoutError StopAsyncIteration NotImplemented"
)

_IN_PLACE: Dict[str, Callable[[Any, Any], Any]] = {
    "+=": operator.iadd,
    "-=": operator.isub,
    "*=": operator.imul,
    "/=": operator.itruediv,
    "//=": operator.ifloordiv,
    "%=": operator.imod,
    "**=": operator.ipow,
    "@=": operator.imatmul,
    "<<=": operator.ilshift,
    ">>=": operator.irshift,
    "&=": operator.iand,
    "|=": operator.ior,
    "^=": operator.ixor,
}

_SIGNS = {
    ast.Add: "+=",
    ast.Sub: "-=",
    ast.Mult: "*=",
    ast.Div: "/=",
    ast.FloorDiv: "//=",
    ast.Mod: "%=",
    ast.Pow: "**=",
    ast.MatMult: "@=",
    ast.LShift: "<<=",
    ast.RShift: ">>=",
    ast.BitAnd: "&=",
    ast.BitOr: "|=",
    ast.BitXor: "^=",
}

_MISSING = (
    "language='restricted' needs RestrictedPython inside the sandbox: run pip install 'atoll[restricted]' where the "
    "sandbox has the packages of its host, or make it with packages=['RestrictedPython']"
)


class Unsupported(Exception):
    """The package is not there. The cell's error is called as the API's own."""


class Guard:
    """Runs cells under the rules. The package is looked for with the first one."""

    def __init__(self) -> None:
        more = os.environ.get(MORE, "").split(",")
        self._modules: FrozenSet[str] = MODULES | {name.strip() for name in more if name.strip()}
        self._policy: Any = None
        self._builtins: Dict[str, Any] = {}

    def run(self, source: str, name: str, namespace: Dict[str, Any]) -> Any:
        """The value of the last expression, if the cell ends with one.

        Raises:
            SyntaxError: it is no Python, or the rules refuse it; nothing of it has run.
            Unsupported: the package is missing.
        """
        if self._policy is None:
            self._load()
        self._builtins.update(_tools())
        namespace["__builtins__"] = self._builtins
        tree = ast.parse(source, name)
        self._check(tree, name)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, name, "exec", dont_inherit=True), namespace)  # noqa: S102  # running it is what this is for
        if not isinstance(last, ast.Expr):
            return None
        return eval(compile(ast.Expression(last.value), name, "eval", dont_inherit=True), namespace)  # noqa: S307

    def _check(self, tree: ast.Module, name: str) -> None:
        """Refuse what the rules refuse, and have the rest ask before each attribute, item and import."""
        errors: List[str] = []
        self._policy(errors, [], {}).visit(tree)
        if errors:
            raise SyntaxError("; ".join(errors[:5]), (name, None, None, None))

    def _load(self) -> None:
        try:
            guards = importlib.import_module("RestrictedPython.Guards")
            transformer = importlib.import_module("RestrictedPython.transformer")
        except ImportError:
            raise Unsupported(_MISSING) from None
        self._read = guards.safer_getattr_raise
        self._builtins.update(guards.safe_builtins)
        self._builtins.update({each: getattr(builtins, each) for each in _ALSO.split()})
        self._builtins.update(
            __import__=self._import,
            __metaclass__=_Metaclass(),
            __name__="__main__",
            _getattr_=self._get,
            _getitem_=operator.getitem,
            _getiter_=iter,
            _inplacevar_=_change,
            _change_attribute_=self._change_attribute,
            _change_item_=_change_item,
            _iter_unpack_sequence_=guards.guarded_iter_unpack_sequence,
            _unpack_sequence_=guards.guarded_unpack_sequence,
            _write_=_writable,
            delattr=_no_delattr,
            display=getattr(builtins, "display", None),
            getattr=self._getattr,
            hasattr=self._hasattr,
            setattr=_no_setattr,
        )
        self._policy = _policy(transformer.RestrictingNodeTransformer)

    def _get(self, holder: Any, name: str) -> Any:
        """Raises AttributeError and NotImplementedError, as RestrictedPython does."""
        if type(holder).__name__ == "ForwardRef":
            raise AttributeError("%s of a type that is text is not for restricted code" % name)
        value = self._read(holder, name)
        if isinstance(holder, types.ModuleType):
            self._judge(holder, name, value)
        return value

    def _judge(self, module: types.ModuleType, name: str, value: Any) -> None:
        """Modules carry others, and what they are made of, as attributes: `pathlib.os`, `json.codecs`, `typing.sys`."""
        if isinstance(value, types.ModuleType):
            allowed = value.__name__ in self._modules
        else:
            public = getattr(module, "__all__", None)
            allowed = (module.__name__, name) not in _TREACHEROUS and (public is None or name in public)
        if not allowed:
            raise AttributeError("%s.%s is not for restricted code" % (module.__name__, name))

    def _getattr(self, holder: Any, name: str, *default: Any) -> Any:
        try:
            return self._get(holder, name)
        except AttributeError:
            if len(default) != 1:
                raise
            return default[0]

    def _hasattr(self, holder: Any, name: str) -> bool:
        try:
            self._get(holder, name)
        except AttributeError:
            return False
        return True

    def _change_attribute(self, holder: Any, name: str, sign: str, other: Any) -> None:
        _check_name(name)
        setattr(_writable(holder), name, _change(sign, self._get(holder, name), other))

    def _import(
        self, name: str, _globals: Any = None, _locals: Any = None, wanted: Sequence[str] = (), level: int = 0
    ) -> Any:
        """Raises ImportError for all but the modules of the list, and for what of these is not public."""
        if level or name not in self._modules:
            raise ImportError(
                "restricted code may not import %s; it may import %s" % (name, ", ".join(sorted(self._modules)))
            )
        module = importlib.import_module(name)
        for each in wanted or ():
            try:
                self._get(module, each)
            except (AttributeError, NotImplementedError) as error:
                raise ImportError(str(error)) from None
        return module if wanted else importlib.import_module(name.partition(".")[0])


def _tools() -> Dict[str, Any]:
    """What the host lends to this cell."""
    lent = {name: value for name, value in vars(builtins).items() if isinstance(value, (Tool, Tools))}
    return {**lent, "ToolError": ToolError}


class _Metaclass:
    """Makes the classes of restricted code, whose instances it may write to. Stands for whichever their bases have."""

    def __prepare__(self, name: str, bases: Tuple[type, ...], **options: Any) -> Any:
        return types.prepare_class(name, bases, options)[1]

    def __call__(self, name: str, bases: Tuple[type, ...], members: Any, **options: Any) -> type:
        kind, _, left = types.prepare_class(name, bases, options)
        made: type = kind(name, bases, members, **left)
        type.__setattr__(made, "_guarded_writes", True)
        return made


def _writable(holder: Any) -> Any:
    """Raises TypeError for what restricted code has not made itself."""
    if isinstance(holder, (dict, list, set, bytearray)) or (
        not isinstance(holder, type) and getattr(type(holder), "_guarded_writes", False)
    ):
        return holder
    raise TypeError("restricted code may not change what is of the type %s" % type(holder).__name__)


def _no_setattr(holder: Any, name: str, value: Any) -> None:
    _check_name(name)
    setattr(_writable(holder), name, value)


def _no_delattr(holder: Any, name: str) -> None:
    _check_name(name)
    delattr(_writable(holder), name)


def _check_name(name: Any) -> None:
    if type(name) is not str or name.startswith("_"):
        raise AttributeError("restricted code may not set the attribute %.100r" % (name,))


def _change_item(holder: Any, key: Any, sign: str, other: Any) -> None:
    _writable(holder)[key] = _change(sign, holder[key], other)


def _change(sign: str, value: Any, other: Any) -> Any:
    return _IN_PLACE[sign](value, other)


def _policy(base: Any) -> Any:
    """RestrictedPython's rules, with what well-meaning code often does and these refuse: to print as usual, to annotate
    variables, and to change an item or an attribute in place."""

    class Policy(base):  # type: ignore[misc]
        def visit_Name(self, node: ast.Name) -> Any:  # noqa: N802  # as ast calls it
            if node.id == "print" and isinstance(node.ctx, ast.Load):
                return node
            return super().visit_Name(node)

        def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:  # noqa: N802
            if isinstance(node.target, ast.Name):
                return self.node_contents_visit(node)
            if node.value is None:
                return ast.copy_location(ast.Pass(), node)
            plain = ast.Assign(targets=[node.target], value=node.value)
            return self.visit(ast.fix_missing_locations(ast.copy_location(plain, node)))

        def visit_AugAssign(self, node: ast.AugAssign) -> Any:  # noqa: N802
            target = node.target
            if isinstance(target, ast.Attribute):
                changed, key = "_change_attribute_", ast.Constant(target.attr)
            elif isinstance(target, ast.Subscript) and not isinstance(target.slice, (ast.Slice, ast.Tuple)):
                changed, key = "_change_item_", self.visit(target.slice)
            else:
                return super().visit_AugAssign(node)
            sign = ast.Constant(_SIGNS[type(node.op)])
            arguments = [self.visit(target.value), key, sign, self.visit(node.value)]
            call = ast.Call(func=ast.Name(changed, ast.Load()), args=arguments, keywords=[])
            return ast.fix_missing_locations(ast.copy_location(ast.Expr(call), node))

    return Policy
