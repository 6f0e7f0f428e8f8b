"""Python functions as tools: their input schema, and calls with JSON arguments.

Registration costs one `inspect.signature` and a check of each type, so that a wrong definition fails where it
is written. Docstring, schema and converters are made on first use.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from typing import Any

from toolcrib.errors import DefinitionError, Violation
from toolcrib.schema.convert import Converter, convert, misfits
from toolcrib.schema.types import (
    ABSENT,
    Docs,
    TypeSchemas,
    UnresolvedName,
    check_constraints,
    is_struct,
    json_default,
    metadata,
    parse_docstring,
)
from toolcrib.schema.validate import ArgumentCheck, refuse
from toolcrib.spec import Content, Outcome

_EMPTY = inspect.Parameter.empty
_UNNAMED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL)
_EXTRA = inspect.Parameter.VAR_KEYWORD
_WITHOUT_SCHEMA = (_EMPTY, None, type(None), Any, object, str, bytes, Outcome)
"""Return annotations without a schema of the value; text is not structured."""
_accepted: set[Any] = set()
"""Types known to have a schema."""


class FunctionShape:
    """The parameters of one function and, on demand, their schema and converters."""

    __slots__ = ("_docs", "context_parameter", "extra", "function", "parameters", "returns", "struct")

    def __init__(
        self,
        function: Callable[..., Any],
        parameters: list[inspect.Parameter],
        context_parameter: str | None,
        extra: inspect.Parameter | None,
        returns: Any,
    ) -> None:
        self.function = function
        self.returns = returns
        """The annotation of its result, which may be a string."""
        self.parameters = parameters
        self.context_parameter = context_parameter
        self.extra = extra
        """The `**kwargs` of the function, if it has one."""
        self.struct: str | None = None
        if len(parameters) == 1 and extra is None:
            only = parameters[0]
            if only.default is _EMPTY and is_struct(only.annotation):
                self.struct = only.name
        self._docs: Docs | None = None

    @property
    def docs(self) -> Docs:
        """The function's docstring, parsed once."""
        if self._docs is None:
            self._docs = parse_docstring(self.function.__doc__)
        return self._docs

    def schema(self) -> dict[str, Any]:
        """Return the input schema. A single structured parameter is the arguments object itself."""
        schemas = TypeSchemas()
        if self.struct is not None:
            rule = schemas.struct(metadata(self.parameters[0].annotation)[0])
        else:
            rule = {"type": "object", "properties": {}, "additionalProperties": self.extra is not None}
            required = []
            for parameter in self.parameters:
                rule["properties"][parameter.name] = self._property(parameter, schemas)
                if parameter.default is _EMPTY:
                    required.append(parameter.name)
            if required:
                rule["required"] = required
            if self.extra is not None and self.extra.annotation is not _EMPTY:
                rule["additionalProperties"] = schemas.schema(self.extra.annotation)
        if schemas.defs:
            rule["$defs"] = schemas.defs
        return rule

    def output_schema(self) -> dict[str, Any] | None:
        """Return the schema of what the function returns; None if its annotation does not say, or text."""
        returned = _returned(self.function, self.returns)
        if returned in _WITHOUT_SCHEMA or _names(returned, Outcome, Content):
            return None
        schemas = TypeSchemas(returned=True)
        try:
            rule = schemas.schema(returned)
        except (DefinitionError, RecursionError):
            return None
        return {**rule, "$defs": schemas.defs} if schemas.defs else rule or None

    def _property(self, parameter: inspect.Parameter, schemas: TypeSchemas) -> dict[str, Any]:
        rule = schemas.schema(parameter.annotation)
        if "description" not in rule and parameter.name in self.docs.parameters:
            rule["description"] = self.docs.parameters[parameter.name]
        default = _faithful_default(parameter)
        if default is not ABSENT:
            rule["default"] = default
        return rule

    def adapter(self) -> Callable[[dict[str, Any]], dict[str, Any]] | None:
        """Return the conversion of checked arguments to keyword arguments; None if none is needed."""
        if self.struct is not None:
            return _flattened(self.struct, convert(self.parameters[0].annotation))
        named = {parameter.name: convert(parameter.annotation) for parameter in self.parameters}
        others = None if self.extra is None else convert(self.extra.annotation)
        return _adapting(named, others) if others is not None or any(named.values()) else None


def _names(annotation: Any, *kinds: type) -> bool:
    """Return True if one of these types is in an annotation."""
    return annotation in kinds or any(_names(part, *kinds) for part in typing.get_args(annotation))


def _flattened(name: str, build: Converter | None) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def adapt(arguments: dict[str, Any]) -> dict[str, Any]:
        try:
            return {name: arguments if build is None else build(arguments)}
        except ValueError as error:
            raise refuse(misfits([], error)) from None

    return adapt


def _adapting(
    named: dict[str, Converter | None], others: Converter | None
) -> Callable[[dict[str, Any]], dict[str, Any]]:
    plan = [name for name, inner in named.items() if inner is not None]

    def adapt(arguments: dict[str, Any]) -> dict[str, Any]:
        adapted = dict(arguments)
        violations: list[Violation] = []
        for name in plan if others is None else arguments:
            inner = named.get(name, others)
            if inner is not None and name in adapted:
                try:
                    adapted[name] = inner(adapted[name])
                except ValueError as error:
                    violations += misfits([name], error)
        if violations:
            raise refuse(violations)
        return adapted

    return adapt


def _faithful_default(parameter: inspect.Parameter) -> Any:
    """Return the default as JSON if converting it back gives the same value, else `ABSENT`."""
    if parameter.default is _EMPTY:
        return ABSENT
    default = json_default(parameter.default)
    inner = convert(parameter.annotation)
    try:
        # A default that JSON would change must come from the function itself, so the schema does not name it.
        same = default is not ABSENT and bool((inner(default) if inner else default) == parameter.default)
    except (TypeError, ValueError):
        same = False
    return default if same else ABSENT


def inspect_function(
    function: Callable[..., Any], context_types: tuple[Any, ...] = (), *, typed: bool = True
) -> FunctionShape:
    """Read a function's signature; `DefinitionError` names a parameter that cannot be described.

    A parameter annotated with one of `context_types` gets the call's context and is not an argument.
    With `typed=False` (an explicit schema is given) annotations may be missing.
    """
    signature = _signature(function, resolved=False)
    try:
        return _shape(function, signature, context_types, typed)
    except UnresolvedName:
        # `eval_str` leaves names inside of other types, such as `list['Item']`; `get_type_hints` does not.
        return _shape(function, _signature(function, resolved=True), context_types, typed)


def _shape(
    function: Callable[..., Any], signature: inspect.Signature, context_types: tuple[Any, ...], typed: bool
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
                f"{_title(function)}: the parameter {parameter.name!r} cannot be given by name",
                hint="Arguments arrive by name: avoid *args and positional-only parameters.",
            )
        if kind is _EXTRA:
            extra = parameter
            if annotation is _EMPTY:
                continue
        else:
            parameters.append(parameter)
        if typed:
            _check(function, parameter)
    return FunctionShape(function, parameters, context_parameter, extra, signature.return_annotation)


def _signature(function: Callable[..., Any], *, resolved: bool) -> inspect.Signature:
    """Return the signature; annotations that are strings are resolved."""
    try:
        signature = inspect.signature(function)
        if not resolved:
            # Resolving evaluates each string in the module of the function, so it is only done where there
            # are any.
            if str not in [parameter.annotation.__class__ for parameter in signature.parameters.values()]:
                return signature
            return inspect.signature(function, eval_str=True)
        hints = typing.get_type_hints(inspect.unwrap(function), include_extras=True)
    except NameError as error:
        raise DefinitionError(
            f"{_title(function)}: the annotation {error.name!r} cannot be resolved",
            hint="Define the type at module level, or import it outside of TYPE_CHECKING.",
        ) from None
    except Exception as error:
        raise DefinitionError(f"{_title(function)}: {error}") from None
    parameters = [
        parameter.replace(annotation=hints.get(parameter.name, parameter.annotation))
        for parameter in signature.parameters.values()
    ]
    return signature.replace(parameters=parameters)


def _returned(function: Callable[..., Any], returned: Any) -> Any:
    """Return the annotation of what a function returns; `_EMPTY` if there is none that can be read."""
    if returned is _EMPTY or inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        return _EMPTY
    try:
        if returned.__class__ is str:
            returned = typing.get_type_hints(inspect.unwrap(function), include_extras=True)["return"]
        hash(returned)
    except Exception:  # The function runs without it: an annotation may name what is only imported for types.
        return _EMPTY
    return returned


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


def _check(function: Callable[..., Any], parameter: inspect.Parameter) -> None:
    annotation = parameter.annotation
    if annotation is _EMPTY and parameter.name in ("self", "cls"):
        raise DefinitionError(
            f"{_title(function)}: a method has no {parameter.name!r} to be called with",
            hint="Register the method of an object, tools.register(object.method), or write @staticmethod.",
        )
    if annotation is _EMPTY:
        raise DefinitionError(
            f"{_title(function)}: the parameter {parameter.name!r} has no type annotation",
            hint=f"Write `{parameter.name}: str` (or another type), or give input_schema=… yourself.",
        )
    # pydantic reads a default from such a `Field`, but a plain function would get the `Field` as its value.
    if type(parameter.default).__name__ == "FieldInfo":
        raise DefinitionError(
            f"{_title(function)}: the default of {parameter.name!r} is a Field",
            hint=f"Write `{parameter.name}: Annotated[T, Field(…)] = default`.",
        )
    bare, extras = metadata(annotation)
    try:
        if extras:
            check_constraints(extras)
        _accept(bare)
    except RecursionError:
        raise DefinitionError(
            f"{_title(function)}: the type of {parameter.name!r} contains itself without a name",
            hint="Make it a dataclass, a TypedDict or a pydantic model.",
        ) from None
    except DefinitionError as error:
        raise type(error)(
            f"{_title(function)}: the parameter {parameter.name!r}: {error.message}",
            hint=error.hint,
            violations=error.violations,
        ) from None


def _accept(bare: Any) -> None:
    try:
        if bare not in _accepted:
            TypeSchemas().schema(bare)
            _accepted.add(bare)
    except TypeError:  # not hashable: checked each time
        TypeSchemas().schema(bare)


def _title(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", repr(function))


_COMBINED = {"$ref", "allOf", "anyOf", "if", "oneOf", "patternProperties", "unevaluatedProperties"}
"""Keywords by which a schema has properties outside of its `properties`."""


def fitting(name: str, shape: FunctionShape, schema: dict[str, Any]) -> dict[str, Any]:
    """Return an explicit schema, closed (`additionalProperties: false`) unless the function takes others.

    `DefinitionError` if it is invalid, or if arguments that match it would not match the function.
    """
    ArgumentCheck(schema)
    properties = schema.get("properties", {})
    # Such a schema has the structure as an argument, not its fields as the arguments.
    if shape.struct in properties:
        shape.struct = None
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
