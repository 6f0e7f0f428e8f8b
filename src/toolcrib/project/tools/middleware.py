"""Middleware that a project's settings name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from toolcrib.errors import ToolcribError, ToolUnavailable
from toolcrib.middleware import Handler, Middleware, as_middleware, only
from toolcrib.middleware.handler import named
from toolcrib.project.config.middleware import MiddlewareSetting, middleware_lines
from toolcrib.project.setup import Setup
from toolcrib.spec import Call, CallContext, Outcome


def named_middleware(setup: Setup) -> Iterator[Middleware]:
    """Yield the middleware of a project in its order. Code of the project is loaded at the first call."""
    for number, setting in enumerate(setup.config.middleware):
        if setting.file is None:
            assert setting.factory is not None
            made: Middleware = setting.factory(**setting.options)
        else:
            made = _of_file(setup, setting, f"middleware[{number}]")
        yield only(made, *setting.tools) if setting.tools else made


def _of_file(setup: Setup, setting: MiddlewareSetting, name: str) -> Middleware:
    def wrap(following: Handler) -> Handler:
        made: list[Handler] = []

        async def handle(call: Call, ctx: CallContext) -> Outcome:
            # A file that does not load is tried again at the next call: its user may have trusted it by then.
            if not made:
                made.append(_load(setup, setting, name)(following))
            return await made[0](call, ctx)

        return handle

    return named(wrap, setting.use)


def _load(setup: Setup, setting: MiddlewareSetting, name: str) -> Middleware:
    """Run the file, as it was trusted, and return its middleware. Raises NotTrusted, LockDrift and others."""
    assert setting.file is not None
    path, function = setting.file
    line = middleware_lines(setup.config.middleware)[name]
    # The copy of what was trusted: the file itself may change between check and use.
    copies = dict(setup.starts.code(name, line))
    copy = copies.get(str(setup.place.root / path))
    if copy is None:
        raise ToolUnavailable(f"{name}: there is no file {path} in the project, or a link leads to it")
    module = ModuleType(Path(path).stem)
    module.__file__ = str(setup.place.root / path)
    try:
        exec(compile(Path(copy).read_bytes(), module.__file__, "exec"), module.__dict__)  # noqa: S102 - trusted
        found = getattr(module, function)
        return as_middleware(found(**setting.options) if setting.options else found)
    except ToolcribError:
        raise
    except Exception as error:
        raise ToolUnavailable(f"{name}: {setting.use} cannot be loaded: {error!r}") from error
