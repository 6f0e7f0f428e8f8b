"""Accesses that the sandbox refused a local server, and the permission that would allow it.

The paths and hosts in an error that the server itself wrote are compared with its permissions.
"""

from __future__ import annotations

import errno
import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from toolcrib.errors import HostNotAllowed, PermissionDenied, ToolcribError, ToolFailed
from toolcrib.executors.output import created_in
from toolcrib.executors.trace.denials import READ_ONLY, denials_of, named_hosts, refused_paths
from toolcrib.executors.trace.reach import Reach
from toolcrib.executors.workspace.workspace import CallNetwork, Workspace
from toolcrib.sandbox import Confinement
from toolcrib.sandbox.files.paths import within
from toolcrib.spec import Tool

if TYPE_CHECKING:
    from toolcrib.manifest.dialects.mcp_servers import ServerSpec

_OFFLINE = re.compile(
    r"EAI_AGAIN|\bENOTFOUND|ENETUNREACH|ECONNREFUSED|getaddrinfo|name resolution|name or service not known"
    r"|unreachable|connect|fetch|request", re.IGNORECASE,
)  # fmt: skip
_ERROR = re.compile(r"\b\w*(?:Error|Exception)\b|\berror\b", re.IGNORECASE)
_BYPASSED = (
    "It reaches its hosts only by the proxy in HTTP_PROXY and HTTPS_PROXY, which it has not used."
    " Node.js uses it from versions 24 and 22.21 on."
)
_OWN_PLACE = (
    "It keeps its data in the folder of its program, which stays read-only. Give it an absolute path in the"
    " project, such as {root}/data, by an argument or variable that it documents."
)
_NOISE = re.compile(r"(?:Node\.js v[\d.]+|npm (?:ERR!|error).*log.*|at .+|\^+|[{}\]]*)")


def summary(stderr: str) -> str:
    """Return the line of a standard error that says most: the last error, else the last line."""
    lines = [line.strip() for line in stderr.splitlines() if not _NOISE.fullmatch(line.strip())]
    return next((line for line in reversed(lines) if _ERROR.search(line)), lines[-1] if lines else "")


@dataclass(slots=True)
class LocalProcess:
    """A server's process to start, and what it takes to explain a refusal."""

    spec: ServerSpec
    tool: Tool
    """The process described as a tool."""
    workspace: Workspace
    job: Confinement
    network: CallNetwork
    _reported: int = 0
    """Refused hosts that an error has named."""
    _created: frozenset[str] = frozenset()

    def created(self) -> tuple[str, ...]:
        """Return what was created since the last look that starts other programs of the user."""
        found = created_in(self.job)
        new = tuple(path for path in found if path not in self._created)
        self._created = frozenset(found)
        return new

    def explain(self, error: ToolcribError, text: str, arguments: Any = ()) -> ToolcribError:
        """Add to an error the permission that its text lacks, if there is one."""
        found = self._hosts(text, arguments) or self._files(text)
        if found is None:
            error.hint = self._advice(text, arguments) or error.hint
            return error
        added, details = found
        error.details |= {**details, "permissions": added}
        name = self.spec.name
        if "network" in added and not self.spec.states_network:
            allow = [word for host in added["network"]["allow"] for word in ("--allow", host)]
            error.hint = f"To allow it: {shlex.join(('toolcrib', 'trust', name, *allow))}"
        else:
            error.hint = f"To allow it, write under mcp_servers.{name} in config.yml: {self._block(added)}"
        if not isinstance(error, ToolFailed):
            return error
        what = f"reach {', '.join(details.get('hosts', ()))}"
        if "path" in details:
            what = f"{details['access']} {details['path']}"
        denied = HostNotAllowed if "hosts" in details and self.network.job else PermissionDenied
        return denied(
            f"{name} may not {what}, which its permissions do not grant: {error.message}",
            hint=error.hint,
            details={**error.details, "started": True},
        )

    def _files(self, text: str) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Return the permission that the first refused path needs, and details for the error."""
        reach, found = Reach.of(self.workspace, self.tool, self.job), [*refused_paths(text)]
        if READ_ONLY.search(text) and not self.spec.unwritable:
            # SQLite's error does not name the file that it cannot write; the command line may.
            words = (word for word in self.spec.args if "/" in word or "=" in word)
            found += ((word.partition("=")[2] or word, errno.EROFS) for word in words)
        for denial in denials_of(reach, found):
            # No folder on its command line was granted, so the root is not either.
            if denial.grant is not None and (denial.path != reach.cwd or not self.spec.unwritable):
                fs = {denial.access: denial.grant}
                return {"fs": fs}, {"path": denial.path, "access": denial.access}
        return None

    def _advice(self, text: str, arguments: Any) -> str | None:
        """Return what to do about what no permission opens: a package, a way around the proxy, a file."""
        if self.network.is_bypassed and _OFFLINE.search(text) and named_hosts(json.dumps(arguments)):
            return _BYPASSED
        if READ_ONLY.search(text) is None:
            return None
        reach = Reach.of(self.workspace, self.tool, self.job)
        if any(within(reach.place(path), *reach.free) for path, _ in refused_paths(text)):
            return _OWN_PLACE.format(root=reach.root)
        lines = self.spec.unwritable
        return f"{self.spec.name} may not write {lines[0]}." if lines else None

    def _hosts(self, text: str, arguments: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Return the hosts that its proxy refused, or without a network those that the call names."""
        # A host is named by one error only: the next error may have another cause.
        later = self.network.refused[self._reported :]
        self._reported += len(later)
        hosts = [one.entry for one in later if one.entry is not None]
        if not hosts and (not self.network.job or self.network.is_bypassed) and _OFFLINE.search(text):
            allowed = self.spec.permissions.network.allow
            named = named_hosts(f"{text} {json.dumps(arguments)}")
            hosts = [host for host in named if not any(fnmatchcase(host, entry) for entry in allowed)]
        if not hosts:
            return None
        wanted = list(dict.fromkeys((*self.spec.permissions.network.allow, *hosts)))
        return {"network": {"allow": wanted}}, {"hosts": list(dict.fromkeys(hosts))}

    def _block(self, added: Mapping[str, Any]) -> str:
        """Return its permissions with these as one line of YAML."""
        present = self.spec.permissions
        files = {"read": list(present.read), "write": list(present.write)}
        for access, path in added.get("fs", {}).items():
            files[access].append(path)
        block: dict[str, Any] = {"fs": {name: paths for name, paths in files.items() if paths}}
        if "network" in added:
            block["network"] = added["network"]
        elif present.network.mode != "none":
            block["network"] = {"allow": list(present.network.allow)} if present.network.allow else True
        return f"permissions: {json.dumps(block)}"
