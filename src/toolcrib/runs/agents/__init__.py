"""Agents: their files, the models behind them, and the steps of their runs."""

from toolcrib.runs.agents.agent import Agent, AgentTeam, Budgets, full_model
from toolcrib.runs.agents.files import agent_schema, check_agents, read_agent, read_all, read_files
from toolcrib.runs.agents.providers import Models
from toolcrib.runs.agents.runs import AgentRuns
from toolcrib.runs.agents.steps import AgentSteps
from toolcrib.runs.agents.tools import AgentTools, PrepareCall
