"""Each provider against an HTTP server that answers as it does: streams, parallel tools, failures, keys."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.crib import Crib
from tests.model_servers import ModelServer, Turn, model_server
from toolcrib.errors import BudgetExceeded, HostNotAllowed, ModelFailed, SecretMissing
from toolcrib.project import Project
from toolcrib.runs.agents import Agent, Budgets

# The packages of the providers take seconds to import, so one test process does it.
pytestmark = pytest.mark.xdist_group("models")

KEY = "sk-very-secret-1234567890"
MODELS = {"anthropic": "claude-sonnet-5", "openai": "gpt-4o", "google": "gemini-2.5-flash"}
PATHS = {"anthropic": "", "openai": "/v1", "google": ""}
HEADERS = {
    "anthropic": ("x-api-key", KEY),
    "openai": ("authorization", f"Bearer {KEY}"),
    "google": ("x-goog-api-key", KEY),
}
Opened = Callable[[ModelServer], Project]


@pytest.fixture(params=list(MODELS))
def api(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def opened(crib: Crib, api: str) -> Opened:
    """The project, with a provider `fake` of this API at the server's address."""

    def opened(server: ModelServer) -> Project:
        provider = {"api": api, "base_url": server.url + PATHS[api], "key": "FAKE_KEY"}
        crib.write(".toolcrib/config.yml", json.dumps({"models": {"providers": {"fake": provider}}}))
        crib.trust()
        crib.secrets["FAKE_KEY"] = KEY
        project = crib.open()

        @project.toolset.tool
        def weather(city: str) -> str:
            """Return the weather."""
            return f"sunny in {city}"

        return project

    return opened


def agent(api: str, **more: Any) -> Agent:
    return Agent("a", f"fake:{MODELS[api]}", "Be brief.", tools=("weather",), **more)


BOTH = [("weather", {"city": "Oslo"}), ("weather", {"city": "Rome"})]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_run_calls_tools_side_by_side_and_answers(api: str, opened: Opened, stream: bool) -> None:
    with model_server(Turn("Let me |see.", BOTH), Turn("Both are |sunny.")) as server:
        async with opened(server) as project:
            run = await project.runs.run(None, agent(api), "Where is it sunny?", stream=stream)
            assert (run.answer or "").replace("|", "") == "Both are sunny."
            timeline = project.runs.timeline(run.id)
    assert [call["state"] for call in timeline["iterations"][0]["calls"]] == ["done", "done"]
    assert (run.input_tokens, run.output_tokens) == (200, 40)
    first, second = server.requests
    name, value = HEADERS[api]
    assert first["headers"][name] == value
    assert "Be brief." in json.dumps(first)
    assert "Where is it sunny?" in json.dumps(first)
    text = json.dumps(second)
    assert text.index("sunny in Oslo") < text.index("sunny in Rome")


async def test_parts_of_a_streamed_answer_are_events(api: str, opened: Opened) -> None:
    with model_server(Turn("Both are |sunny.")) as server:
        async with opened(server) as project:
            events = [event async for event in project.runs.stream(None, agent(api), "go")]
    assert [event.kind for event in events][-2:] == ["answered", "done"]


async def test_a_busy_provider_is_asked_again_after_the_time_that_it_names(api: str, opened: Opened) -> None:
    with model_server(Turn(status=429, retry_after="1"), Turn("Here I am.")) as server:
        async with opened(server) as project:
            run = await project.runs.run(None, agent(api), "go")
            kinds = [event.kind for event in project.runs.store.events.page(run.id)]
            failed = [
                event for event in project.runs.store.events.page(run.id) if event.kind == "model_failed"
            ]
    assert (run.answer, len(server.requests)) == ("Here I am.", 2)
    assert kinds == ["created", "model_failed", "answered", "done"]
    assert failed[0].document["detail"]["details"]["retryAfterS"] == 1
    assert run.ended_at is not None
    assert run.ended_at - run.created_at >= 1


async def test_a_stream_that_breaks_is_begun_again(api: str, opened: Opened) -> None:
    with model_server(Turn("Half |of it, |and", breaks=True), Turn("The whole.")) as server:
        async with opened(server) as project:
            run = await project.runs.run(None, agent(api), "go", stream=True)
            events = project.runs.store.events.page(run.id)
    assert (run.answer, len(server.requests)) == ("The whole.", 2)
    assert [event.kind for event in events] == ["created", "model_failed", "answered", "done"]


async def test_a_refused_request_fails_the_run_at_once(api: str, opened: Opened) -> None:
    with model_server(Turn(status=400)) as server:
        async with opened(server) as project:
            with pytest.raises(ModelFailed, match="slow down"):
                await project.runs.run(None, agent(api), "go")
    assert len(server.requests) == 1


async def test_a_cost_budget_refuses_a_model_without_a_price(api: str, opened: Opened) -> None:
    with model_server(Turn("", BOTH[:1]), Turn("done")) as server:
        async with opened(server) as project:
            unknown = Agent("a", "fake:nobody-knows-1", tools=("weather",), budgets=Budgets(cost_usd=5))
            with pytest.raises(BudgetExceeded, match="is unknown"):
                await project.runs.run(None, unknown, "go")
            free = Agent("b", "fake:nobody-knows-1", tools=("weather",))
            run = await project.runs.run(None, free, "go")
            assert (run.answer, run.cost_usd) == ("done", None)
            server.turns[:] = [Turn("", BOTH[:1])]
            with pytest.raises(BudgetExceeded, match="cost_usd"):
                await project.runs.run(None, agent(api, budgets=Budgets(cost_usd=1e-6)), "go")


async def test_keys_stay_with_their_provider(api: str, opened: Opened, crib: Crib) -> None:
    with model_server(Turn("hello")) as server:
        async with opened(server) as project:
            run = await project.runs.run(None, agent(api), f"say {KEY}")
            assert KEY not in (crib.home / "audit" / "tools.log").read_text() if crib.audit() else True
            models, _ = project._agent_parts
            client = models._client(models._providers["fake"], KEY)
            with pytest.raises(HostNotAllowed):
                await client.post("http://127.0.0.1:1/v1/messages")
            assert run.answer == "hello"


async def test_a_missing_key_is_named_before_anything_is_stored(api: str, opened: Opened, crib: Crib) -> None:
    with model_server(Turn("hello")) as server:
        project = opened(server)
        crib.secrets.clear()
        async with crib.open() as other:
            with pytest.raises(SecretMissing, match="FAKE_KEY"):
                other.runs.start(None, Agent("a", f"fake:{MODELS[api]}"), "go")
        await project.aclose()
    assert not server.requests
