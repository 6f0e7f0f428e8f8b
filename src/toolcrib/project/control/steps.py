"""The steps that a project adds to the path of every call, put together in their order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from toolcrib.core.controls import Controls
from toolcrib.guard import Reviews
from toolcrib.project.control.acceptance import Acceptance
from toolcrib.project.control.access import AccessControl
from toolcrib.project.control.approvals.step import ApprovalQuestions, ApprovalStep
from toolcrib.project.control.audit import CallAudit
from toolcrib.project.control.code import ApprovedCode
from toolcrib.project.control.first_use import FirstUse
from toolcrib.project.control.idempotency import IdempotencyStep
from toolcrib.project.control.outputs import KeptOutputs
from toolcrib.project.control.rates import RateStep
from toolcrib.project.control.secrets import SecretsStep
from toolcrib.project.control.store import DecisionStore
from toolcrib.project.integrity.fingerprints import Fingerprints
from toolcrib.project.integrity.lock import Pins
from toolcrib.project.setup import Setup
from toolcrib.spec import Call, Limits, Tool


class ProjectSteps:
    """The steps of one project. `controls` is what its call path takes.

    `parts` returns the tools that a tool calls, `find` the tool of a name.
    """

    def __init__(
        self,
        setup: Setup,
        store: DecisionStore,
        acceptance: Acceptance,
        parts: Callable[[Tool], Sequence[Tool]],
        find: Callable[[str], Tool],
    ) -> None:
        self.store = store
        config, log, place = setup.config, setup.audit, setup.place
        self.fingerprint = fingerprint = Fingerprints(place.root, parts).of
        self.pins = pins = Pins(place.root, fingerprint, config.started)
        known, asks = (fingerprint, parts, find, place, acceptance, pins), config.review == "ask"
        self.first_use = first_use = FirstUse(Reviews(setup.vault, setup.files), *known, asks=asks)
        code = ApprovedCode(fingerprint, setup.snapshots, pins)
        limits = Limits(calls_per_minute=config.calls_per_minute, concurrent_calls=config.concurrency)
        self.access = AccessControl(config.policy, store.tokens)
        self.questions = ApprovalQuestions(self.access, first_use, code)
        self.secrets = SecretsStep(setup.secrets)
        first_use.mask = self.secrets.mask
        self.plan: Callable[[Call], dict[str, Any]] = lambda _: {}
        """Returns the plan of a dry run."""
        audit = CallAudit(log, self.secrets)
        self.outputs = KeptOutputs(setup.vault)
        self.approval = ApprovalStep(self.questions, store, code, log)
        self.controls = Controls(
            visible=self.access.visible,
            authorise=(self.access.authorise, acceptance.require),
            require=(audit.ensure, code.require_pinned),
            approve=(
                IdempotencyStep(store, self.access, self.secrets.mask),
                self.approval,
                self.secrets,
                RateStep(store, limits),
                code,
            ),
            plan=lambda ctx: self.plan(ctx),  # noqa: PLW0108 - set below
            start=audit.start,
            mask=self.secrets.mask,
            keep=self.outputs.keep,
            record=audit.record,
        )
