"""Reports about a project and its machine, the same on the command line and over HTTP."""

from toolcrib.project.reports.machine import describe_machine
from toolcrib.project.reports.policy import explain_call
from toolcrib.project.reports.secrets import SecretNeed, secret_needs

__all__ = ["SecretNeed", "describe_machine", "explain_call", "secret_needs"]
