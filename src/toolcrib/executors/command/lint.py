"""Checks of command tools: shell lines, code among the words, secret arguments, programs without a proxy."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from toolcrib.errors import ManifestError
from toolcrib.manifest.yaml.diagnostics import Diagnostic, quoted
from toolcrib.manifest.yaml.positions import KeyPath
from toolcrib.manifest.yaml.source import Document
from toolcrib.spec import CommandExec, Tool
from toolcrib.template import Namespaces, parse_conditional

_COMMAND: KeyPath = ("exec", "command")
_PROGRAM_FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
"""The folders in which a confined command is searched."""
_DIRECT = frozenset((
    "ping", "ping6", "traceroute", "tracepath", "mtr", "nmap", "dig", "host", "nslookup", "drill",
    "whois", "ssh", "scp", "sftp", "ssh-keyscan", "ssh-copy-id", "mosh", "rsync", "telnet", "nc",
    "ncat", "netcat", "socat", "psql", "pg_dump", "pg_dumpall", "pg_restore", "pg_isready", "mysql",
    "mysqldump", "mysqladmin", "mariadb", "mariadb-dump", "mongosh", "mongodump", "mongorestore",
    "redis-cli", "valkey-cli", "sqlcmd", "sqlplus", "mosquitto_pub", "mosquitto_sub", "nats", "kcat",
    "ldapsearch", "snmpget", "snmpwalk", "smbclient", "ntpdate", "sendmail", "iperf3",
))  # fmt: skip
"""Programs with a protocol of their own, which ignore the variables that name a proxy."""


def check(tool: Tool, document: Document) -> Iterator[Diagnostic]:
    """Run all checks of command tools."""
    checks = (_shell_line, _code_words, _secret_arguments, _direct_programs)
    return chain.from_iterable(one(tool, document) for one in checks)


def absent(tool: Tool, document: Document, root: str) -> Iterator[Diagnostic]:
    """Report a program that is not on this machine."""
    config = tool.config
    assert isinstance(config, CommandExec)
    name = config.entrypoint
    if "/" in name:
        places, hint = [Path(root, name)], "create it, or fix the path: it starts at the project root"
    else:
        places = [Path(folder, name) for folder in _PROGRAM_FOLDERS]
        hint = "install it for the whole machine, or write its path"
    if not name.startswith("~") and len(name.split()) == 1 and not any(map(os.path.exists, places)):
        message = f"the program {quoted(name)} is not here"
        yield document.diagnostic("program", message, (*_COMMAND, "entrypoint"), hint=hint)


def _shell_line(tool: Tool, document: Document) -> Iterator[Diagnostic]:
    """Check that each placeholder of a shell line is where a value is allowed."""
    config = tool.config
    assert isinstance(config, CommandExec)
    if config.shell is None:
        return
    from toolcrib.executors.command.shell import shell_problems, variables_with_values

    names = Namespaces.of(tool)
    try:
        line = parse_conditional(config.shell, names)
        variables = variables_with_values(config.env, names)
    except ManifestError as error:
        if error.details.get("path"):
            path: KeyPath = (*_COMMAND, "env", *error.details["path"])
            yield document.diagnostic("shell", error.message, path, key=True)
        return
    for unknown in set(config.allow_dash) - names.arguments:
        message = f"{quoted(unknown)} is not a parameter"
        yield document.diagnostic("shell", message, (*_COMMAND, "allow_dash"))
    place = (*_COMMAND, "shell")
    for problem in shell_problems(line, variables):
        offset = problem.details["offset"]
        literal = config.shell[offset : offset + max(1, problem.details["length"])]
        at = document.locate_text(place, literal, config.shell.count(literal, 0, offset))
        yield document.diagnostic("shell", problem.message, place, hint=problem.hint, at=at)


def _code_words(tool: Tool, document: Document) -> Iterator[Diagnostic]:
    """Report values of a call that a program takes as code, or may take so."""
    from toolcrib.executors.command.code_values import code_values

    for found in code_values(tool):
        rule, more = ("code", "; each call needs approval") if found.needs_approval else ("code-shape", "")
        hint = "pass the value as an argument after the code, or write `allow_code: true` beside it"
        yield document.diagnostic(rule, found.message + more, (*_COMMAND, *found.path), hint=hint)


def _secret_arguments(tool: Tool, document: Document) -> Iterator[Diagnostic]:
    """Check that no secret is an argument of the program."""
    assert isinstance(tool.config, CommandExec)
    secrets = {secret.name for secret in tool.permissions.secrets}
    for number, element in enumerate(tool.config.args):
        if any(f"${{{mark}{name}}}" in element for name in secrets for mark in ("", "secret:")):
            message = "a secret cannot be an argument: any user of the machine can read arguments"
            hint = "the program finds it in its environment; or pass it by `stdin`"
            yield document.diagnostic("secret-argument", message, (*_COMMAND, "args", number), hint=hint)


def _direct_programs(tool: Tool, document: Document) -> Iterator[Diagnostic]:
    """Check that a program with granted hosts can use the proxy that leads to them."""
    assert isinstance(tool.config, CommandExec)
    program = Path(tool.config.entrypoint).name
    if tool.permissions.network.mode in ("any", "hosts") and program in _DIRECT:
        message = f"{quoted(program)} speaks neither HTTP nor SOCKS, so it cannot reach the granted hosts"
        hint = "write `network: host`: this machine's own network, which a person must approve"
        yield document.diagnostic("program-network", message, ("permissions", "network"), key=True, hint=hint)
