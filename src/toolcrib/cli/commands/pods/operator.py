"""`toolcrib operator`."""

from __future__ import annotations

from importlib.util import find_spec

import click

from toolcrib.cli.output import print_result
from toolcrib.errors import UnavailableError


@click.command("operator")
@click.option("--namespace", "namespaces", multiple=True, help="Only this one (default: the whole cluster).")
@click.option("--crds", is_flag=True, help="Print the definitions of the resources, and end.")
def command(namespaces: tuple[str, ...], crds: bool) -> None:
    """Run AgentRuns in a Kubernetes cluster, until SIGTERM or Ctrl-C.

    For each AgentRun it builds a pod, and writes its result into the status. TOOLCRIB_IMAGE is the image of
    the pods; NATS_URL, and NATS_SECRET with the name of a Secret, are for their bridges.
    """
    if crds:
        from toolcrib.pods.operator.base import crd_yaml

        print_result(crd_yaml(), nl=False)
        return
    if not find_spec("kopf"):
        from toolcrib.state.installation import install_hint

        raise UnavailableError("kopf is not installed", hint=install_hint("pods"))
    import kopf

    from toolcrib.pods.operator import handlers  # noqa: F401 - kopf finds the handlers once they are imported

    kopf.configure(verbose=False)
    kopf.run(standalone=True, clusterwide=not namespaces, namespaces=namespaces)
