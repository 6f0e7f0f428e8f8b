"""Python functions as tools: their input schema, and calls with JSON arguments.

Plain JSON types are read here (`plain`), all others by pydantic (`annotations`). A wrong definition fails
where it is written: at registration, which costs one `inspect.signature`, and pydantic for other types.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import types
import typing
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from toolcrib.errors import DefinitionError, InvalidInput
from toolcrib.schema.docstring import Docs, parse_docstring
from toolcrib.schema.jsonable import to_json
from toolcrib.schema.plain import Converter, Plain, described, plain, unwrapped
from toolcrib.schema.validate import ArgumentCheck
from toolcrib.schema.walk import rooted
from toolcrib.spec import Content, Outcome

if TYPE_CHECKING:
    from toolcrib.schema.annotations import Annotation

_EMPTY = inspect.Parameter.empty
_ABSENT: Any = dataclasses.MISSING
"""The default of a parameter that may be left out and has none, or none in JSON."""
_UNNAMED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL)
_EXTRA = inspect.Parameter.VAR_KEYWORD
_ANY = Plain({})
_WITHOUT_SCHEMA = (_EMPTY, None, type(None), Any, object, str, bytes, Outcome)
"""Return annotations without a schema of the value; text and binary data are not structured."""


class FunctionShape:
    """The parameters of one function, their schema and conversion."""

    __slots__ = (
        "_docs", "_plain", "_rest", "_typed", "_wire", "context_parameter", "extra", "function", "origin",
        "parameters", "returns", "struct"
    )  # fmt: skip

    def __init__(
        self,
        function: Callable[..., Any],
        parameters: list[inspect.Parameter],
        context_parameter: str | None,
        extra: inspect.Parameter | None,
        returns: Any,
    ) -> None:
        self.function = function
        self.origin = origin_of(function)
        self.returns = returns
        """The annotation of its result, which may be a string."""
        self.parameters = parameters
        self.context_parameter = context_parameter
        self.extra = extra
        """The `**kwargs` of the function, if it has one."""
        self.struct: str | None = None
        """The only parameter, if its fields are the arguments."""
        self._plain: dict[str, Plain] = {}
        for parameter in parameters:
            found = _ANY if parameter.annotation is _EMPTY else plain(parameter.annotation)
            if found is not None and not _is_field(parameter.default):
                self._plain[parameter.name] = found
        self._rest = _ANY if extra is None or extra.annotation is _EMPTY else plain(extra.annotation)
        """The type of further arguments; None if pydantic reads it."""
        self._typed: Annotation | None = None
        """All parameters that pydantic reads, or the only one."""
        self._wire: dict[str, str] = {}
        """Name to name in JSON, of the parameters that pydantic reads."""
        self._docs: Docs | None = None

    @property
    def docs(self) -> Docs:
        """The function's docstring, parsed once."""
        if self._docs is None:
            doc = self.origin.__doc__
            if self.origin.__name__ == "__call__" and not doc:
                doc = type(self.function).__doc__
            self._docs = parse_docstring(doc)
        return self._docs

    @property
    def is_plain(self) -> bool:
        """True if no parameter needs pydantic."""
        return len(self._plain) == len(self.parameters) and self._rest is not None

    def read_types(self, *, strictly: bool, flat: bool = True) -> None:
        """Let pydantic read the types that are not plain. `DefinitionError` names a parameter without schema.

        If not `strictly`, values of such a parameter stay as they are. If `flat`, the fields of a single
        structure are the arguments.
        """
        from toolcrib.schema.annotations import Annotation, arguments_type

        self.struct = None
        if flat and len(self.parameters) == 1 and self.extra is None and _is_struct(self.parameters[0]):
            self._annotation(self.parameters[0])
            self._typed = Annotation(self.parameters[0].annotation)
            if self._typed.schema.get("type") == "object":
                self.struct = self.parameters[0].name
                return
        unread = [parameter for parameter in self.parameters if parameter.name not in self._plain]
        if self._rest is None and self.extra is not None:
            unread.append(self.extra)
        if not strictly:
            unread = [parameter for parameter in unread if self._is_readable(parameter)]
        if not unread:
            return
        fields = {one.name: _kind(one) for one in unread}
        optional = {one.name for one in unread if one.default is not _EMPTY and not _is_field(one.default)}
        rest = fields.pop(self.extra.name, None) if self.extra is not None else None
        try:
            self._typed = Annotation(arguments_type(fields, optional, rest))
        except DefinitionError:
            for parameter in unread:
                self._annotation(parameter)
            raise
        self._wire = dict(zip(fields, self._typed.schema.get("properties", {}), strict=True))

    def _is_readable(self, parameter: inspect.Parameter) -> bool:
        try:
            return bool(self._annotation(parameter))
        except DefinitionError:
            if parameter is self.extra:
                self._rest = _ANY
            else:
                self._plain[parameter.name] = _ANY
            return False

    def _annotation(self, parameter: inspect.Parameter) -> Annotation:
        """Return the type of an argument object with this parameter only."""
        from toolcrib.schema.annotations import Annotation, arguments_type, name_of

        kind = _kind(parameter)
        try:
            return Annotation(arguments_type({parameter.name: kind}, name=name_of(kind)))
        except DefinitionError as error:
            raise DefinitionError(
                f"{title(self.function)}: the parameter {parameter.name!r}: {error.message}",
                hint=error.hint,
                violations=error.violations,
            ) from None

    def schema(self) -> dict[str, Any]:
        """Return the input schema. A single structured parameter is the arguments object itself."""
        read = {} if self._typed is None else self._typed.schema
        if self.struct is not None:
            return read
        rule: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
        required = []
        for parameter in self.parameters:
            name = self._wire.get(parameter.name, parameter.name)
            rule["properties"][name] = self._property(parameter, read.get("properties", {}).get(name))
            needed = parameter.default is _EMPTY if name in self._plain else name in read.get("required", ())
            if needed:
                required.append(name)
        if required:
            rule["required"] = required
        if self.extra is not None:
            inner = read["additionalProperties"] if self._rest is None else self._rest.rule
            rule["additionalProperties"] = inner or True
        if "$defs" in read:
            rule["$defs"] = read["$defs"]
        return rule

    def _property(self, parameter: inspect.Parameter, read: dict[str, Any] | None) -> dict[str, Any]:
        rule = dict(read if read is not None else self._plain[parameter.name].rule)
        text = described(unwrapped(parameter.annotation)[1]) or self.docs.parameters.get(parameter.name)
        if text:
            rule.setdefault("description", text)
        default = self._faithful_default(parameter)
        if default is not _ABSENT:
            rule["default"] = default
        return rule

    def _faithful_default(self, parameter: inspect.Parameter) -> Any:
        """Return the default as JSON if converting it back gives the same value, else `_ABSENT`."""
        default = parameter.default
        if default is _EMPTY or default is _ABSENT or _is_field(default):
            return _ABSENT
        if isinstance(default, float) and not math.isfinite(default):
            return _ABSENT
        try:
            written = to_json(default)
            # A default that JSON would change must come from the function itself, so the schema does not
            # name it.
            found = self._plain.get(parameter.name)
            if found is None:
                alone = self._annotation(parameter)
                (back,) = alone.read(dict.fromkeys(alone.schema["properties"], written)).values()
            else:
                back = written if found.convert is None else found.convert(written)
            return written if bool(back == default) else _ABSENT
        except (TypeError, ValueError, InvalidInput):
            return _ABSENT

    def settled(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Return the part of the input schema whose defaults and whole numbers are settled before the call.

        Pydantic fills in the fields of a structure itself: it distinguishes a default from a given value.
        """
        if self.struct is not None:
            return {}
        properties = {
            name: rule if name in self._plain else {word: rule[word] for word in ("default",) if word in rule}
            for name, rule in schema["properties"].items()
        }
        return {"properties": properties, "additionalProperties": self._rest.rule if self._rest else {}}

    def output_schema(self) -> dict[str, Any] | None:
        """Return the schema of what the function returns; None if its annotation does not say, or text."""
        returned = _returned(self.origin, self.returns)
        if _is_unstructured(returned):
            return None
        found = plain(returned)
        if found is not None:
            return found.rule or None
        from toolcrib.schema.annotations import Annotation

        try:
            return Annotation(returned, returned=True).schema or None
        except DefinitionError:
            return None

    def adapter(self) -> Callable[[dict[str, Any]], dict[str, Any]] | None:
        """Return the conversion of checked arguments to keyword arguments; None if none is needed."""
        read = None if self._typed is None else self._typed.read
        if self.struct is not None and read is not None:
            name = self.struct
            return lambda arguments: {name: read(arguments)}
        converters = {name: found.convert for name, found in self._plain.items()}
        rest = None if self._rest is None else self._rest.convert
        if read is None and rest is None and not any(converters.values()):
            return None
        typed, all_others = frozenset(self._wire.values()), self._rest is None
        return _adapting(
            converters, rest, lambda name: name in typed or (all_others and name not in converters), read
        )


def _adapting(
    converters: dict[str, Converter | None],
    rest: Converter | None,
    is_typed: Callable[[str], bool],
    read: Callable[[Any], dict[str, Any]] | None,
) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def adapt(arguments: dict[str, Any]) -> dict[str, Any]:
        adapted: dict[str, Any] = {}
        typed: dict[str, Any] = {}
        for name, value in arguments.items():
            if read is not None and is_typed(name):
                typed[name] = value
            else:
                convert = converters.get(name, rest)
                adapted[name] = value if convert is None else convert(value)
        return adapted if read is None else {**adapted, **read(typed)}

    return adapt


def _kind(parameter: inspect.Parameter) -> Any:
    """Return the annotation for pydantic, with the constraints of a default such as `Field(ge=1)`."""
    if _is_field(parameter.default):
        return typing.Annotated[parameter.annotation, parameter.default]
    return parameter.annotation


def _is_field(default: Any) -> bool:
    return type(default).__name__ == "FieldInfo"


def _is_struct(parameter: inspect.Parameter) -> bool:
    """Return True for a required parameter whose type is a dataclass, a TypedDict or a pydantic model."""
    bare = unwrapped(parameter.annotation)[0]
    return (
        parameter.default is _EMPTY
        and isinstance(bare, type)
        and (
            hasattr(bare, "__pydantic_validator__")
            or dataclasses.is_dataclass(bare)
            or typing.is_typeddict(bare)
        )
    )


def _is_unstructured(returned: Any) -> bool:
    """Return True for an annotation whose values are content, binary data or plain text."""
    parts = [returned, *typing.get_args(returned)]
    return returned in _WITHOUT_SCHEMA or bytes in parts or _names(returned, Outcome, Content)


def _names(annotation: Any, *kinds: type) -> bool:
    """Return True if one of these types is in an annotation."""
    return annotation in kinds or any(_names(part, *kinds) for part in typing.get_args(annotation))


def inspect_function(
    function: Callable[..., Any], context_types: tuple[Any, ...] = (), *, typed: bool = True
) -> FunctionShape:
    """Read a function's signature; `DefinitionError` names a parameter that cannot be described.

    A parameter annotated with one of `context_types` gets the call's context and is not an argument.
    With `typed=False` (an explicit schema is given) a type may have no schema.
    """
    signature = _signature(function)
    shape = _shape(function, signature, context_types)
    if not shape.is_plain:
        # Resolving evaluates each string in the module of the function, which plain types do not need.
        shape = _shape(function, _resolved(function, signature), context_types)
    if not shape.is_plain:
        shape.read_types(strictly=typed)
    return shape


def origin_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function behind partials, wrappers and callable objects, with its docstring and types."""
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    return function if inspect.isroutine(function) else type(function).__call__


def _shape(
    function: Callable[..., Any], signature: inspect.Signature, context_types: tuple[Any, ...]
) -> FunctionShape:
    parameters: list[inspect.Parameter] = []
    context_parameter, extra = None, None
    for parameter in signature.parameters.values():
        annotation, kind = parameter.annotation, parameter.kind
        if _is_context(annotation, context_types):
            context_parameter = parameter.name
            continue
        if kind in _UNNAMED:
            raise DefinitionError(
                f"{title(function)}: the parameter {parameter.name!r} cannot be given by name",
                hint="Arguments arrive by name: avoid *args and positional-only parameters.",
            )
        if annotation is _EMPTY and parameter.name in ("self", "cls"):
            raise DefinitionError(
                f"{title(function)}: a method has no {parameter.name!r} to be called with",
                hint="Register the method of an object, tools.register(object.method), or write "
                "@staticmethod.",
            )
        if typing.get_origin(annotation) is typing.Unpack:
            parameters += _unpacked(typing.get_args(annotation)[0])
        elif kind is _EXTRA:
            extra = parameter
        else:
            parameters.append(parameter)
    return FunctionShape(function, parameters, context_parameter, extra, signature.return_annotation)


def _unpacked(struct: Any) -> Iterator[inspect.Parameter]:
    """Yield the parameters of `**options: Unpack[Options]`."""
    for name, stated in typing.get_type_hints(struct, include_extras=True).items():
        needed, hint = name in struct.__required_keys__, stated
        if (qualifier := typing.get_origin(hint)) in (typing.Required, typing.NotRequired):
            needed, hint = qualifier is typing.Required, typing.get_args(hint)[0]
        default = _EMPTY if needed else _ABSENT
        yield inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=hint, default=default)


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise DefinitionError(f"{title(function)}: {error}") from None


def _resolved(function: Callable[..., Any], signature: inspect.Signature) -> inspect.Signature:
    """Return the signature with annotations for strings, also for those inside of other types."""
    parameters = signature.parameters.values()
    stated = {one.name: one.annotation for one in parameters if one.annotation is not _EMPTY}
    try:
        hints = _hints(function, stated)
    except NameError as error:
        raise DefinitionError(
            f"{title(function)}: the annotation {error.name!r} cannot be resolved",
            hint="Define the type at module level, or import it outside of TYPE_CHECKING.",
        ) from None
    except Exception as error:
        raise DefinitionError(f"{title(function)}: {error}") from None
    return signature.replace(
        parameters=[one.replace(annotation=hints.get(one.name, one.annotation)) for one in parameters]
    )


def _hints(function: Callable[..., Any], annotations: dict[str, Any]) -> dict[str, Any]:
    """Return annotations as types, by the names that the function sees."""
    # Not of the function itself: a wrapper may have a signature of its own.
    holder = types.SimpleNamespace(__annotations__=annotations)
    return typing.get_type_hints(holder, getattr(origin_of(function), "__globals__", {}), include_extras=True)


def _returned(function: Callable[..., Any], returned: Any) -> Any:
    """Return the annotation of what a function returns; `_EMPTY` if there is none that can be read."""
    if returned is _EMPTY or inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        return _EMPTY
    try:
        found = _hints(function, {"return": returned})["return"]
        hash(found)
    except Exception:  # The function runs without it: an annotation may name what is only imported for types.
        return _EMPTY
    return found


def _is_context(annotation: Any, context_types: tuple[Any, ...]) -> bool:
    """Return True for a context type, or a union with one, such as `Context | None`."""
    parts = () if annotation.__class__ is type else getattr(annotation, "__args__", ())
    for known in context_types:
        if annotation is known:  # `in` compares, which is slow for classes of `typing`
            return True
        for part in parts:
            if part is known:
                return True
    return False


def title(function: Callable[..., Any]) -> str:
    """Return the name of a function for messages."""
    return getattr(origin_of(function), "__qualname__", repr(function))


_COMBINED = {"$ref", "allOf", "anyOf", "if", "oneOf", "patternProperties", "unevaluatedProperties"}
"""Keywords by which a schema has properties outside of its `properties`."""


def fitting(name: str, shape: FunctionShape, schema: dict[str, Any]) -> dict[str, Any]:
    """Return an explicit schema, closed (`additionalProperties: false`) unless the function takes others.

    `DefinitionError` if it is invalid, or if arguments that match it would not match the function.
    """
    schema = rooted(schema)
    ArgumentCheck(schema)
    properties = schema.get("properties", {})
    # Such a schema has the structure as an argument, not its fields as the arguments.
    if shape.struct in properties:
        shape.read_types(strictly=False, flat=False)
    if shape.extra is not None or shape.struct is not None:
        return schema
    known = {parameter.name for parameter in shape.parameters}
    for prop in properties:
        if prop not in known:
            raise DefinitionError(
                f"{name}: the schema has the property {prop!r}, but the function has no such parameter"
            )
    for parameter in shape.parameters:
        if parameter.default is parameter.empty and parameter.name not in schema.get("required", ()):
            raise DefinitionError(
                f"{name}: the function needs {parameter.name!r}, but the schema does not require it",
                hint=f"Put {parameter.name!r} into `required`, or give the parameter a default.",
            )
    if schema.get("additionalProperties", False) is not False:
        raise DefinitionError(
            f"{name}: the schema allows other properties, but the function takes none",
            hint="Give the function a `**kwargs`, or set additionalProperties to false.",
        )
    # `additionalProperties` does not see properties that come from `$ref` or `allOf`, and would refuse them.
    return schema if _COMBINED & schema.keys() else {**schema, "additionalProperties": False}
