"""`toolcrib trust`."""

from __future__ import annotations

import click

from toolcrib.cli.commands.decide.trust_servers import (
    WAIT_S,
    listed,
    print_failed,
    resolve,
)
from toolcrib.cli.commands.decide.trust_state import TrustState
from toolcrib.cli.confirm import require_person
from toolcrib.cli.options import project_options, yes_option
from toolcrib.cli.output import print_change, print_json, print_note, print_result
from toolcrib.errors import ApprovalRequired, NotTrusted, UsageError


@click.command("trust")
@click.argument("names", nargs=-1, metavar="[NAME]…")
@project_options
@click.option("--show", is_flag=True, help="Only show it: each NAME whole, with its files and differences.")
@click.option("--check", is_flag=True, help="Only say what waits or differs from the lock; then exit 5.")
@click.option(
    "--allow", multiple=True, metavar="HOST", help="Let the server NAME reach it (`*`: all public; `none`)."
)
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(0, 600),
    default=WAIT_S,
    help="Seconds each server has to start.",
)
@yes_option
@click.option("--revoke", is_flag=True, help="Take back the trust in each NAME, or in everything.")
@click.option("--lock", is_flag=True, help="Write toolcrib.lock: what is trusted now, and nothing else runs.")
@click.option("--locked", metavar="SHA256", help="Trust exactly the toolcrib.lock with this digest.")
def command(
    names: tuple[str, ...],
    root: str | None,
    as_json: bool,
    yes: bool,
    locked: str | None,
    allow: tuple[str, ...],
    wait_s: float,
    **chosen: bool,
) -> int:
    """Trust what is new or has changed in a project.

    Nothing of a cloned project runs before this. It shows in groups what its settings weaken, what its tools,
    agents and workflows may touch, and what its MCP servers offer, then asks once. Servers are started for
    that, once the settings are trusted. `d` shows files and differences, `s` asks one after the other.
    NAME is a tool, a server, `agent:NAME`, `workflow:NAME` or `server:NAME`.
    """
    modes = [name for name, on in {**chosen, "locked": locked is not None}.items() if on]
    if len(modes) > 1 or (yes and modes):
        raise UsageError(f"give only one of --{', --'.join(modes + ['yes'] * yes)}")
    if locked is not None:
        return _trust_lock(root, locked.lower(), as_json=as_json)
    if chosen["lock"]:
        return _write_lock(root, as_json=as_json)
    if chosen["revoke"]:
        return _revoke(root, names, as_json=as_json)
    from toolcrib.project import Project
    from toolcrib.project.new_server import network_of

    network = network_of(allow) if allow else None
    state = TrustState(Project.inspect(root), names, network, wait_s)
    if chosen["check"]:
        return _check(state, as_json=as_json)
    if as_json and not yes:
        print_json(state.as_dict())
        return 0
    if chosen["show"]:
        state.print(whole=bool(names))
        return 0
    if state.starting:
        failed = listed(root, state.starting, wait_s, "flag" if yes else "terminal")
        state = TrustState(Project.inspect(root), names, network, wait_s, failed)
    if not as_json:
        state.print()
    print_failed(state.failed)
    if state.asks:
        state.decide(yes=yes)
    if as_json:
        print_json(TrustState(Project.inspect(root), names, None, wait_s, state.failed).as_dict())
    state.project.bundles.prepare()  # This process has read every tool.
    return int(bool(state.failed))


def _check(state: TrustState, *, as_json: bool) -> int:
    from toolcrib.project.authoring.locking import drift

    differs = [] if state.names else drift(state.project)
    if as_json:
        print_json({**state.as_dict(), "drift": differs})
    else:
        for line in (*state.waiting_lines(), *(f"toolcrib.lock: {one}" for one in differs)):
            print_result(line)
        state.print_created()
        if state.waits:
            print_note("To see and accept it: toolcrib trust")
        if differs:
            print_note("What differs from the lock does not run. To lock it as it is: toolcrib trust --lock")
        if not state.waits and not differs:
            print_note("Nothing waits for trust.")
    return ApprovalRequired.exit_code if state.waits or differs else 0


def _revoke(root: str | None, names: tuple[str, ...], *, as_json: bool) -> int:
    from toolcrib.project import Project
    from toolcrib.state import user_name

    require_person("trust")
    project = Project.inspect(root)
    state = TrustState(project, names)
    servers = list(state.servers) if names else ()
    ended = project.trust.revoke(user_name(), state.tools if names else (), servers, channel="terminal")
    what = ", ".join(names) or "This project"
    note = f"{what} {'is no longer' if ended else 'was not'} trusted."
    print_change(as_json, {"revoked": bool(ended)}, note)
    return 0


def _write_lock(root: str | None, *, as_json: bool) -> int:
    from toolcrib.project import Project
    from toolcrib.project.authoring.locking import lock_of, write

    require_person("trust")
    project = Project.inspect(root)
    state = TrustState(project)
    if state.waits:
        print_result("\n".join(state.waiting_lines()))
        raise NotTrusted(
            "only what is trusted can be locked, and something waits", hint="Accept it first: toolcrib trust"
        )
    path, digest, number = write(project, lock_of(project))
    note = f"Wrote {path} with {number} tools, agents and workflows. To accept exactly it elsewhere:"
    print_change(as_json, {"path": str(path), "sha256": digest}, f"{note}\ntoolcrib trust --locked {digest}")
    return 0


def _trust_lock(root: str | None, digest: str, *, as_json: bool) -> int:
    from toolcrib.project import Project
    from toolcrib.project.authoring.locking import accept_lock
    from toolcrib.state import user_name

    require_person("trust")
    number = accept_lock(project := Project.inspect(root), digest, user_name())
    note = f"Trusted {number} tools, agents and workflows as toolcrib.lock has them."
    print_change(as_json, {"trusted": number, "sha256": digest}, note)
    # A lock has no packages of launchers: each machine downloads its own.
    failed = resolve(project, () if project.servers is None else project.servers.mounted, "lock")
    print_failed(failed, "cannot start")
    return int(bool(failed))
