"""The words in which known programs take code or a command; the table of them is `programs.json`.

A value in such a word is reported by lint, and a person must approve each call.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from toolcrib.spec.record import record

Words = tuple[str, ...]
_IN_WORDS = frozenset(
    ("code", "loads", "takes", "subcommands", "files", "modules", "lines", "chdir", "skips", "default")
)
"""Fields of a program that the table writes with spaces between their words."""
_STEERING = re.compile(
    r"PATH|IFS|ENV|BASH_\w*|LD_\w+|SHELLOPTS|PS4|PYTHON\w*|PERL5\w*|NODE_OPTIONS|GIT_\w+|RUBYOPT|RUBYLIB"
    r"|SHELL|\w*PAGER|EDITOR|VISUAL|BROWSER|LESSOPEN|LESSCLOSE|_JAVA_OPTIONS|J\w+_JAVA_OPTIONS|CLASSPATH"
    r"|JAVA_TOOL_OPTIONS|RSYNC_RSH|RSYNC_CONNECT_PROG|TAR_OPTIONS|MAKEFLAGS|MAKEFILES|\w+_ASKPASS|LUA_\w+"
    r"|NODE_PATH|AWKPATH|AWKLIBPATH|PROMPT_COMMAND|ZDOTDIR|VIMINIT|EXINIT|KUBECONFIG|DOCKER_(?:CONFIG|HOST)"
    r"|OPENSSL_(?:CONF|MODULES|ENGINES)|GOFLAGS|PYTEST_(?:ADDOPTS|PLUGINS)|PSQLRC|PHPRC|R_PROFILE\w*"
    r"|GCONV_PATH|GTK_MODULES|LADSPA_PATH|MAGICK_CONFIGURE_PATH|AWS_(?:CONFIG|SHARED_CREDENTIALS)_FILE|SVN_SSH"
    r"|DOTNET_STARTUP_HOOKS|PERLLIB|PHP_INI_SCAN_DIR|BUNDLE_GEMFILE|GEM_(?:HOME|PATH)|JULIA_LOAD_PATH|R_LIBS\w*"
    r"|ERL_(?:\w*FLAGS|LIBS)|MAVEN_OPTS|DJANGO_SETTINGS_MODULE|FLASK_APP|GUNICORN_CMD_ARGS|HGRCPATH|WGETRC|CC|CXX"
    r"|RUSTFLAGS|RIPGREP_CONFIG_PATH|FZF_DEFAULT_COMMAND|RESTIC_PASSWORD_COMMAND|XDG_CONFIG_HOME"
    r"|(?i:npm_config|pip|uv|cargo|rustc?)_\w+"
)
ASSIGNED = re.compile(r"([A-Za-z_]\w*)=")
FINDERS = ("find", "fd", "fdfind")
REMOTE = ("ssh", "slogin")
"""Programs whose operand `script` is a command that gets their standard input."""
FIND_COMMANDS = ("-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec", "--exec-batch")
"""Options of these after which a command begins."""


@record
class Program:
    """The ways in which one program takes code."""

    code: Words = ()
    """Options with the code to run; then there is no operand `script`."""
    loads: Words = ()
    """Further options whose argument is code or a command."""
    takes: Words = ()
    """Other options that take an argument."""
    flags: str = ""
    """Letters of options without one; any other letter makes it unsure which operand is the code."""
    input: str = ""
    """Letters of options with which it reads code from standard input."""
    script: int | None = None
    """The position of the operand that is code."""
    rest: bool = False
    """The operands after that are code too: files as far as they end as the first one does."""
    command: int | None = None
    """The position of the operand at which another command begins."""
    variables: bool = False
    """Words such as `A=1` before that are variables of the command."""
    stdin: bool = False
    """Without code among its words it reads code, or words of a command, from standard input."""
    every: bool = False
    """Any word may be code."""
    mixes: bool = False
    """Options may follow the operand `script`."""
    whole: bool = False
    """Options with one dash are long words."""
    subcommands: Words = ()
    """Words after which any word may be code."""
    files: Words = ()
    """Options whose argument is a file of code."""
    modules: Words = ()
    """Options whose argument is a Python module."""
    module: bool = False
    """The operand `script` is a Python module."""
    lines: Words = ()
    """Options whose argument is a command line."""
    line: str = ""
    """Letters of options that make the operand `script` a command line."""
    text: bool = False
    """The operand `script` is code itself, not a file."""
    joins: bool = False
    """All its operands together are a command line."""
    chdir: Words = ()
    """Options whose argument becomes the working folder."""
    skips: Words = ()
    """Words before the first operand."""
    default: Words = ()
    """Files of code that it reads if none is named."""


@cache
def _programs() -> dict[str, Program]:
    import orjson

    table = orjson.loads((Path(__file__).parent / "programs.json").read_bytes())
    found: dict[str, Program] = {}
    for names, fields in table.items():
        words = {key: tuple(text.split()) for key, text in fields.items() if key in _IN_WORDS}
        found |= dict.fromkeys(names.split(), Program(**{**fields, **words}))
    return found


def known_program(name: str) -> Program | None:
    """Return the record of a program by its name; `python3.12` is `python`."""
    return _programs().get(name) or _programs().get(name.rstrip("0123456789."))


def module_program(name: str) -> Program | None:
    """Return the record of a Python module that runs code of others, as `python -m` starts it."""
    return _programs().get(f"-m{name}")


def is_steering(name: str) -> bool:
    """Return True for an environment variable that decides what is run."""
    return _STEERING.fullmatch(name) is not None


def base_name(text: str) -> str:
    """Return the name of a program without its folder."""
    return text.rpartition("/")[2]
