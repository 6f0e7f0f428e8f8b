"""Workflows: tools, agents and other workflows in steps, as durable as the runs of agents."""

from toolcrib.runs.workflows.files import check_workflows, read_workflow, step_schema
from toolcrib.runs.workflows.steps import WORKFLOW_PROVIDER, WorkflowSteps
from toolcrib.runs.workflows.workflow import Workflow, WorkflowSet
