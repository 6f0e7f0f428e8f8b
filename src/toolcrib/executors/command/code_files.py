"""The files of code that a command line starts: programs, scripts, modules, and files that an option loads.

Command lines are read with the table of `programs`. A file that is only an argument is data and never counts.
Of a Python, JavaScript or shell file those in the project that it imports or sources count too. What a script
reads besides cannot be known.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence

from toolcrib.executors.command.imports import IMPORTING, imported_files, javascript_files, module_files
from toolcrib.executors.command.programs import (
    ASSIGNED,
    FIND_COMMANDS,
    FINDERS,
    Program,
    base_name,
    known_program,
    module_program,
)
from toolcrib.executors.command.reading import CommandReading
from toolcrib.manifest.kinds import CodeFile
from toolcrib.sandbox.files.paths import Paths, first_line
from toolcrib.spec import CommandExec, Tool

PROGRAM_FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
"""The folders in which a confined command is searched, in this order."""
_SUFFIXES = (".cjs", ".js", ".lua", ".mjs", ".php", ".pl", ".py", ".rb", ".sh", ".tcl", ".ts")
"""Endings that an option which names code may leave out."""
_MOST_WORDS = 2_000
_DEEPEST = 5
"""Command lines inside of command lines, and scripts that name their own interpreter."""
_PACKAGES = "node_modules"
_COMMENT = re.compile(r"(?m)(?:^|(?<=\s))#.*$")
_INNER = re.compile(r"\$\(([^()]*)\)|`([^`]*)`")
_RESERVED = frozenset(
    ("!", "{", "do", "elif", "else", "if", "then", "time", "until", "while", "exec", "command")
)
_FILES_IN = ("BASH_ENV", "ENV", "LD_AUDIT", "LD_PRELOAD", "PYTHONSTARTUP")
"""Variables that name files of code."""
_OPTIONS_IN = {"NODE_OPTIONS": "node", "RUBYOPT": "ruby"}
"""Variables with options of an interpreter."""
_STARTED = ("sitecustomize", "usercustomize")
"""Modules that Python imports at its start."""
_NODE = ("bun", "node", "nodejs", "ts-node", "tsx", "vite-node")
"""Programs that start a folder, or a file without its ending."""
_TEXTS = {"node": ".js", "nodejs": ".js", "pypy": ".py", "python": ".py"}
"""The endings of files of languages whose imports are followed, by the programs that take code as a word."""


def code_of_tool(tool: Tool, root: str, paths: Paths) -> Iterator[CodeFile]:
    """Yield the files of code of a command tool."""
    config = tool.config
    assert isinstance(config, CommandExec)
    words = config.args if config.shell is None else ("-c", config.shell)
    return code_files((config.entrypoint, *words), root, config.cwd, paths, config.env)


def code_files(
    argv: Sequence[str], root: str, cwd: str, paths: Paths, env: Mapping[str, object] | None = None
) -> Iterator[CodeFile]:
    """Yield the program of a command line, and all other files of code inside the project.

    Paths are as written, from the project's root. A program without a slash is searched in the system's
    folders. `cwd` is the working folder as written, and `env` the variables that are set.
    """
    reader = _Reader(root, paths)
    yield from reader.program(argv[0])
    folders = [cwd]
    for name, text in (env or {}).items():
        if isinstance(text, str):
            reader.variable(name, text, folders)
    reader.command(list(argv), folders, first=True)
    yield from (CodeFile("script", path) for path in reader.found if path != argv[0])
    packages = (path.partition(_PACKAGES)[0] for path in reader.found if _PACKAGES in path)
    # A package counts by what pins it, so that the digest need not read all of node_modules.
    yield from (CodeFile("packages", f"{above}{_PACKAGES}") for above in dict.fromkeys(packages))
    environments = (reader.environment(path) for path in (argv[0], *reader.found))
    yield from (CodeFile("venv", path) for path in dict.fromkeys(environments) if path is not None)


class _Reader:
    """Reads command lines, and collects the files of code in `found`, as written."""

    def __init__(self, root: str, paths: Paths) -> None:
        self._root = root
        self._paths = paths
        self._depth = 0
        self._read: dict[tuple[str, ...], int] = {}
        """The commands that were read, and how deep."""
        self._modules: list[str] = []
        """Folders in which Python looks besides that of its script."""
        self.found: dict[str, None] = {}

    def program(self, name: str) -> Iterator[CodeFile]:
        """Yield the program itself."""
        if "/" in name:
            yield CodeFile("entrypoint", name, "$.exec.command.entrypoint")
            return
        for folder in PROGRAM_FOLDERS:
            # The first that has it, as the shell searches PATH.
            if stat.S_ISREG(self._paths.leads_to(path := f"{folder}/{name}")):
                yield CodeFile("entrypoint", path)
                return

    def command(self, words: list[str], folders: list[str], *, first: bool = False) -> None:
        """Collect the files of one command. `folders` are the working folders that it may have."""
        fed: list[str] = []
        if "<" in words:
            pairs = list(zip(words, ["", *words], strict=False))
            fed = [word for word, before in pairs if before == "<"]
            words = [word for word, before in pairs if "<" not in (word, before)]
        if not words or self._depth >= _DEEPEST or len(words) > _MOST_WORDS:
            return
        # Read again only from less deep, or `find -exec find -exec …` would take exponential time.
        same = (*words, "<", *fed, "", *folders)
        if self._read.get(same, _DEEPEST) <= self._depth:
            return
        self._read[same] = self._depth
        self._depth += 1
        if "/" in words[0]:
            if first:
                self._interpreter(words[0], folders)
            elif self._is_inside(words[0]):
                self.file(words[0], folders)
        program = known_program(base_name(words[0]))
        if program is None:
            self._unknown(words, folders)
        elif program.joins:
            self.line(" ".join(words[1:]), folders)
        elif base_name(words[0]) in FINDERS:
            # The last first: then each inner one was read already. The words of an inner `find` are here too.
            for at in reversed(range(1, len(words))):
                if words[at - 1] in FIND_COMMANDS and words[at] not in FINDERS:
                    self.command(words[at:], folders)
        else:
            self._known(program, words, fed, folders)
        self._depth -= 1

    def _unknown(self, words: list[str], folders: list[str]) -> None:
        """Collect what a program that is not in the table starts, as far as it looks like a program."""
        for at, word in enumerate(words[1:], 1):
            inner = None if word[:1] in "-+" else known_program(base_name(word))
            if inner is not None and (inner.script is not None or inner.command is not None or inner.joins):
                self.command(words[at:], folders)
                return
            if word[:1] not in "-+" and self.looks_executable(word, folders):
                self.file(word, folders)

    def _known(self, program: Program, words: list[str], fed: list[str], folders: list[str]) -> None:
        """Collect the files of a program that is in the table; `fed` are files that it gets as its input."""
        reading, ending = CommandReading(program, words, 1), ""
        for role, text, option in reading.parts():
            if role == "option":
                folders = self._option(reading, text, option, folders)
            elif role == "variable":
                self.variable(*text.partition("=")[::2], folders)
            elif role == "command":
                # Its input is that of the command, unless it reads words from it.
                inputs = () if program.stdin else fed
                self.command(
                    [*words[reading.at :], *(word for file in inputs for word in ("<", file))], folders
                )
                if program.script is None:
                    return
            if role == "script" or (role == "command" and program.script is not None):
                if not reading.given:
                    ending = os.path.splitext(text)[1]
                    reading.given = self._script(reading, text, folders)
            elif role == "rest" and not program.text and ending and text.endswith(ending):
                self.file(text, folders)
            elif role == "rest" and not program.mixes:
                return
        if not reading.given:
            for word in (*(fed if program.stdin else ()), *program.default):
                self.file(word, folders)

    def _script(self, reading: CommandReading, word: str, folders: list[str]) -> bool:
        """Read the operand that is code. Return False if it may be the argument of an unknown option."""
        if reading.is_line:
            self.line(word, folders)
        elif reading.program.module:
            self.module(word, folders)
        elif not reading.program.text:
            self._loaded(reading, word, folders)
            return self.file(word, folders) or not (reading.unsure or word == "-")
        return True

    def _option(self, reading: CommandReading, text: str, option: str, folders: list[str]) -> list[str]:
        """Read the argument of an option. Return the working folders after it."""
        program = reading.program
        if option in program.files:
            self._loaded(reading, text, folders)
            for name in (text, *(text + suffix for suffix in _SUFFIXES)):
                self.file(name, folders)
        elif option in program.modules:
            self.module(text, folders)
            if module_program(text) is not None:
                self.command([f"-m{text}", *reading.words[reading.at + 1 :]], folders)
        elif option in program.lines:
            self.line(text, folders)
        elif option in program.code and (
            ending := _TEXTS.get(base_name(reading.words[0]).rstrip("0123456789."))
        ):
            self.text(text, ending, folders)
        elif option in program.chdir:
            return self.entered(text, folders)
        return folders

    def _loaded(self, reading: CommandReading, word: str, folders: Sequence[str]) -> None:
        """Count what Node would load by a name without an ending, or by that of a folder."""
        if base_name(reading.words[0]) not in _NODE or "\0" in word:
            return
        for folder in folders:
            path = os.path.join(self._root, folder, word)
            if not self._paths.is_source(path):
                for one in javascript_files(path, self._paths):
                    self._count(os.path.relpath(one, self._root), folders)

    def line(self, text: str, folders: list[str]) -> None:
        """Collect the files of a shell line."""
        folders = list(folders)
        for command in _commands(text):
            while command and (command[0] == "export" or ASSIGNED.match(command[0])):
                self.variable(*command.pop(0).partition("=")[::2], folders)
            if command and command[0] == "cd" and len(command) > 1:
                folders = self.entered(command[1], folders)
            self.command(command, folders)

    def variable(self, name: str, text: str, folders: Sequence[str]) -> None:
        """Collect the files that a variable has loaded; those that commands import come with the commands."""
        if name in _FILES_IN:
            for word in re.split(r"[:\s]+", text):
                self.file(word, folders)
        elif name in _OPTIONS_IN:
            self.command([_OPTIONS_IN[name], *text.split()], list(folders))
        elif name == "PYTHONPATH":
            places = [_joined(folder, one) for one in text.split(":") for folder in folders]
            self._modules += places
            for archive in filter(self._is_file, places):
                self._count(archive, folders)
            for module in _STARTED:
                self.module(module, self._modules)

    def entered(self, name: str, folders: list[str]) -> list[str]:
        """Return the working folders that there may be after a change to this one: the old ones stay.

        Each once and only those that exist, or a line of many such changes would make millions.
        """
        found = (os.path.normpath(_joined(folder, name)) for folder in folders)
        there = [one for one in found if self._paths.is_folder(os.path.join(self._root, one))]
        return [*dict.fromkeys((*folders, *there))]

    def file(self, word: str, folders: Sequence[str]) -> bool:
        """Count a file of code, and the interpreter that its first line names."""
        known = False
        for folder in folders:
            path = _joined(folder, word)
            if not self._is_file(path):
                path = f"{path}/__main__.py"  # Python runs a folder by it.
                if not self._is_file(path):
                    continue
            known = True
            self._count(path, folders)
        return known

    def _count(self, path: str, folders: Sequence[str]) -> None:
        """Count a file that is there, with its interpreter and what it imports."""
        # Each file once, or two scripts that source each other would be read without end.
        if path in self.found:
            return
        self.found[path] = None
        start = self._interpreter(path, folders)
        named = path.endswith(IMPORTING) or "." not in os.path.basename(path)
        # A file without an ending may be a script in any language.
        scripted = named or any(one in start for one in (b"python", b"node", b"sh"))
        if scripted and self._is_inside(path):
            real = self._paths.real(os.path.join(self._root, path))
            # By both names: some languages start from the link, others from what it leads to.
            for one in dict.fromkeys((os.path.join(self._root, path), real)):
                self._imported([one], os.path.dirname(one), folders)

    def text(self, code: str, ending: str, folders: Iterable[str]) -> None:
        """Count the modules that code on the command line imports; its language is that of the ending."""
        for folder in folders:
            place = os.path.join(self._root, folder, ending)
            self._imported((), folder, code={place: code.encode(errors="surrogateescape")})

    def _imported(
        self,
        files: Iterable[str],
        folder: str,
        folders: Iterable[str] = (),
        code: Mapping[str, bytes] | None = None,
    ) -> None:
        """Count the modules that these files import from a folder; of a shell script also from `folders`."""
        at = [os.path.join(self._root, one) for one in (folder, *self._modules)]
        written = [os.path.join(self._root, file) for file in files]
        working = [os.path.join(self._root, one) for one in folders]
        for path in imported_files(written, at, self._paths, working, code):
            if self._is_inside(path):
                self.found[os.path.relpath(path, self._root)] = None

    def module(self, name: str, folders: Iterable[str]) -> None:
        """Count what `python -m` runs of a module in the working folder."""
        for folder in (*folders, *self._modules):
            found = module_files(name, os.path.join(self._root, folder), self._paths, main=True)
            files = [os.path.relpath(path, self._root) for path in found]
            self.found |= dict.fromkeys(files)
            self._imported(files, folder)

    def looks_executable(self, word: str, folders: Iterable[str]) -> bool:
        """Return True for an executable script or binary, by its first bytes."""
        for folder in folders:
            path = os.path.join(self._root, folder, word)
            if self._is_file(path) and os.access(path, os.X_OK):
                start = self._paths.text(self._paths.real(path), 4)
                return start.startswith((b"#!", b"\x7fELF"))
        return False

    def environment(self, path: str) -> str | None:
        """Return the virtual environment that a program inside the project is part of."""
        folder = os.path.dirname(os.path.dirname(path))
        return folder if self._is_inside(path) and self._is_file(f"{folder}/pyvenv.cfg") else None

    def _interpreter(self, path: str, folders: Iterable[str]) -> bytes:
        """Count the files of the interpreter that a script's first line names, and return that line."""
        if not self._is_inside(path):
            return b""
        # Not noted among the looks: the whole file is part of the digest.
        start = first_line(self._paths.real(os.path.join(self._root, path)))
        if start.startswith(b"#!"):
            line = start[2:].decode(errors="surrogateescape")
            self.command([*line.strip().split(None, 1), path], list(folders))  # one argument (execve(2))
        return start

    def _is_file(self, path: str) -> bool:
        if not path or "\0" in path or "${" in path or "{{" in path:
            return False
        return self._paths.is_source(os.path.join(self._root, path))

    def _is_inside(self, path: str) -> bool:
        """Return True for a file that is in the project, or is named as if it were."""
        written = os.path.normpath(os.path.join(self._root, path))
        return any(one.startswith(f"{self._root}/") for one in (written, self._paths.real(written)))


def _joined(folder: str, name: str) -> str:
    return name if folder in ("", ".") else os.path.join(folder, name)


def _commands(text: str) -> Iterator[list[str]]:
    """Yield the words of each command of a shell line, as far as they are literal."""
    for found in _INNER.finditer(text):
        yield from _commands(found[1] or found[2] or "")
    text = _COMMENT.sub("", text.replace("\\\n", "")).replace("\n", ";")
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    # Comments are gone already; within a word `#` is an ordinary character.
    lexer.commenters = ""
    command: list[str] = []
    try:
        for word in lexer:
            if word in ("<", ">", ">>"):
                command.append("<" if word == "<" else ">")
            elif set(word) <= set("();<>|&"):
                if command:
                    yield command
                command = []
            elif command or word not in _RESERVED:
                command.append(word)
    except ValueError:  # A quote that is not closed: the shell refuses the line as well.
        pass
    if command:
        yield command
