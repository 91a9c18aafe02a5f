"""Tools that are functions of this program."""

from __future__ import annotations

import inspect
import json
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Literal, Union

from . import _threads


class Tool:
    """A function as a tool. Its type hints are the schema of the arguments, its docstring is the description.

    The hints can be `str`, `int`, `float`, `bool`, `None`, `Any`, `list`, `dict`, `Literal`, unions and `TypedDict`;
    `Annotated[str, "text"]` describes an argument. The model may call the tool without asking.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        schema: Mapping[str, Any] | None = None,
        read_only: bool = False,
        timeout: float | None = None,
    ) -> None:
        self.function = function
        self.name = name or function.__name__
        self.description = inspect.getdoc(function) or "" if description is None else description
        self.schema: dict[str, Any] = arguments_schema(function) if schema is None else dict(schema)
        """The JSON Schema of the arguments."""
        self.read_only = read_only
        """Whether it changes nothing, so that calls may run at the same time as others that read."""
        self.timeout = timeout
        """How long a call may take, in seconds; two minutes by default."""

    def __call__(self, *positional: Any, **named: Any) -> Any:
        return self.function(*positional, **named)

    def parts(self) -> tuple[str, str, str, bool, float | None, Callable[[str, Callable[[str], None]], None]]:
        """Returns what native code needs of it."""
        start = _threads.starter(f"architect-{self.name}", self._run)
        return (self.name, self.description, json.dumps(self.schema), self.read_only, self.timeout, start)

    def _run(self, arguments: str) -> str:
        try:
            returned = _threads.call(self.function, **json.loads(arguments))
            return json.dumps({"is_ok": True, "text": _text(returned)})
        except BaseException as error:  # the model reads it, and on this thread no one else does
            return json.dumps({"is_ok": False, "text": _threads.describe(error)})


def _text(returned: object) -> str:
    if returned is None:
        return ""
    return returned if isinstance(returned, str) else json.dumps(returned, ensure_ascii=False)


def arguments_schema(function: Callable[..., Any]) -> dict[str, Any]:
    """Returns the JSON Schema of a function's arguments."""
    hints = typing.get_type_hints(function, include_extras=True)
    properties, required = {}, []
    for name, parameter in inspect.signature(function).parameters.items():
        place = f"the parameter '{name}' of the tool '{function.__name__}'"
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(f"{place} can't be given by its name")
        if name not in hints:
            raise TypeError(f"{place} has no type hint")
        properties[name] = _schema(hints[name], place)
        if parameter.default is parameter.empty:
            required.append(name)
    return _object(properties, required)


def _object(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def _schema(hint: Any, place: str) -> dict[str, Any]:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint in _PLAIN:
        return {"type": _PLAIN[hint]}
    if hint is Any:
        return {}
    if origin is typing.Annotated:
        texts = [text for text in arguments[1:] if isinstance(text, str)]
        return {**_schema(arguments[0], place), **({"description": texts[0]} if texts else {})}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (Union, types.UnionType):
        # `None` stands for an argument that is left out, which not all providers let be null.
        kinds = [_schema(kind, place) for kind in arguments if kind is not type(None)]
        return kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
    if hint is list or origin is list:
        return {"type": "array", **({"items": _schema(arguments[0], place)} if arguments else {})}
    if hint is dict or (origin is dict and arguments[0] is str):
        return {"type": "object", **({"additionalProperties": _schema(arguments[1], place)} if arguments else {})}
    if typing.is_typeddict(hint):
        fields = typing.get_type_hints(hint, include_extras=True)
        properties = {name: _schema(_field(kind), place) for name, kind in fields.items()}
        return _object(properties, sorted(hint.__required_keys__))
    raise TypeError(f"{place} has a type that JSON can't express: {hint!r}")


def _field(hint: Any) -> Any:
    """Returns the type of a field without `Required` or `NotRequired`, which also `typing_extensions` has."""
    is_marked = str(typing.get_origin(hint)).rpartition(".")[2] in ("Required", "NotRequired")
    return typing.get_args(hint)[0] if is_marked else hint
