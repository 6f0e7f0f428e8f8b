"""Python functions as tools: their input schema, and calls with JSON arguments.

Plain JSON types are read here (`plain`), all others by pydantic (`annotations`). A wrong definition fails
where it is written: at registration, which costs one `inspect.signature`, and pydantic for other types.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import types
import typing
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from toolcrib.errors import DefinitionError, InvalidInput
from toolcrib.schema.decode import to_json
from toolcrib.schema.docstring import Docs, parse_docstring
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
_WITHOUT_SCHEMA = (_EMPTY, None, type(None), Any, object, str, bytes, Outcome)
"""Return annotations without a schema of the value; text and binary data are not structured."""


class FunctionShape:
    """The parameters of one function, their schema and conversion."""

    __slots__ = (
        "_docs", "_plain", "_read", "context_parameter", "extra", "function", "origin", "parameters",
        "returns", "struct"
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
        everything = parameters if extra is None else [*parameters, extra]
        self._plain = {one.name: _plain(one) for one in everything}
        self._read: Annotation | None = None
        """The type of all arguments, if not all are plain."""
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
        return None not in self._plain.values()

    def read_types(self, *, strictly: bool, flat: bool = True) -> None:
        """Let pydantic read the types. `DefinitionError` names a parameter without schema.

        If not `strictly`, values of such a parameter stay as they are. If `flat`, the fields of a single
        structure are the arguments.
        """
        from toolcrib.schema.annotations import Annotation, arguments_type

        self.struct, parameters, extra = None, self.parameters, self.extra
        if flat and len(parameters) == 1 and extra is None and _is_struct(parameters[0]):
            try:
                self._read = Annotation(parameters[0].annotation)
            except DefinitionError:
                self._alone(parameters[0])
                raise
            if self._read.schema.get("type") == "object":
                self.struct = parameters[0].name
                return
        if not strictly:
            parameters = [self._readable(parameter) for parameter in parameters]
            extra = extra and self._readable(extra)
        try:
            self._read = Annotation(arguments_type(parameters, extra))
        except DefinitionError:
            for parameter in parameters if extra is None else [*parameters, extra]:
                self._alone(parameter)
            raise

    def _readable(self, parameter: inspect.Parameter) -> inspect.Parameter:
        try:
            self._alone(parameter)
        except DefinitionError:
            return parameter.replace(annotation=Any)
        return parameter

    def _alone(self, parameter: inspect.Parameter) -> None:
        """Read the type of an argument object with this parameter only. The error names it."""
        from toolcrib.schema.annotations import Annotation, arguments_type, name_of

        try:
            Annotation(arguments_type([parameter], None, name_of(parameter.annotation)))
        except DefinitionError as error:
            raise DefinitionError(
                f"{title(self.function)}: the parameter {parameter.name!r}: {error.message}",
                hint=error.hint,
                violations=error.violations,
            ) from None

    def schema(self) -> dict[str, Any]:
        """Return the input schema. A single structured parameter is the arguments object itself."""
        if self.struct is not None and self._read is not None:
            return self._read.schema
        rule = self._plain_schema() if self._read is None else self._read.schema
        # The order of both is the same, but names may differ: a field may have an alias.
        for parameter, (name, part) in zip(self.parameters, rule["properties"].items(), strict=True):
            text = described(unwrapped(parameter.annotation)[1]) or self.docs.parameters.get(parameter.name)
            if text:
                part.setdefault("description", text)
            default = self._default(parameter, name)
            if default is not _ABSENT:
                part["default"] = default
        return rule

    def _plain_schema(self) -> dict[str, Any]:
        rules = {name: dict(found.rule) for name, found in self._plain.items() if found is not None}
        others = False if self.extra is None else rules.pop(self.extra.name) or True
        rule = {"type": "object", "properties": rules, "additionalProperties": others}
        required = [one.name for one in self.parameters if one.default is _EMPTY]
        return {**rule, "required": required} if required else rule

    def _default(self, parameter: inspect.Parameter, name: str) -> Any:
        """Return the default of a property as JSON if reading it gives the same value, else `_ABSENT`.

        A default that JSON would change must come from the function itself, so the schema does not name it.
        """
        default = parameter.default
        if default is _EMPTY or default is _ABSENT or _is_field(default):
            return _ABSENT
        try:
            back = written = to_json(default)
            if self._plain[parameter.name] is None and self._read is not None:
                back = self._read.read({name: written}, some=True)[parameter.name]
            return written if bool(back == default) else _ABSENT
        except (TypeError, ValueError, InvalidInput):
            return _ABSENT

    def settled(self) -> dict[str, Any] | None:
        """Return the part of the schema whose defaults are filled in before the call; None for all of it.

        Pydantic fills in the fields of a structure itself: it distinguishes a default from a given value.
        """
        if self._read is None:
            return None
        properties = {} if self.struct is not None else self._read.schema["properties"]
        return {
            "properties": {
                name: {"default": part["default"]} for name, part in properties.items() if "default" in part
            }
        }

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
        if self._read is not None:
            read, struct = self._read.read, self.struct
            return read if struct is None else lambda arguments: {struct: read(arguments)}
        converters = {name: found.convert for name, found in self._plain.items() if found and found.convert}
        others = None if self.extra is None else converters.pop(self.extra.name, None)
        return _adapting(converters, others) if converters or others else None


def _adapting(
    converters: dict[str, Converter], others: Converter | None
) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def adapt(arguments: dict[str, Any]) -> dict[str, Any]:
        adapted = dict(arguments)
        for name in converters if others is None else arguments:
            convert = converters.get(name, others)
            if name in adapted and convert is not None:
                adapted[name] = convert(adapted[name])
        return adapted

    return adapt


def _plain(parameter: inspect.Parameter) -> Plain | None:
    if parameter.annotation is _EMPTY:
        return None if _is_field(parameter.default) else Plain({})
    return None if _is_field(parameter.default) else plain(parameter.annotation)


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
