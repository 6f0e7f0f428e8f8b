"""What a server lists and answers that is not as the protocol says: it costs only itself."""

from __future__ import annotations

import textwrap

import pytest

from tests.crib import Crib, failed
from tests.integration.project.mcp.test_mcp_stdio import opened, server
from tests.mcp_servers import RAW, mount
from toolcrib.project.authoring.lint import project_findings

pytestmark = pytest.mark.timeout(120)


async def test_a_definition_that_cannot_be_used_leaves_the_others(crib: Crib) -> None:
    odd = RAW + textwrap.dedent("""
        def definitions():
            counts = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 2**64}}}
            return [
                dict(DEFINITIONS[0], name="odd", inputSchema=counts),
                *DEFINITIONS,
                dict(DEFINITIONS[0], description="Say it again."),
                dict(DEFINITIONS[0], name="text", inputSchema={"type": "string"}),
                dict(DEFINITIONS[0], name=7),
                "nothing",
            ]
        main()
    """)
    mount(crib, "raw", odd)
    expected = [
        "'text': its definition is not one of MCP: see `inputSchema.type`",
        "'7': its definition is not one of MCP: see `name`",
        "'nothing': its definition is not one of MCP: see `entry`",
        "'odd': its schema cannot be used: Integer exceeds",
        "'hello': the server lists this name more than once; the first one counts",
    ]
    async with opened(crib) as project:
        assert [name for name in project.toolset.names if name.startswith("raw__")] == ["raw__hello"]
        left = server(project, "raw").as_dict()["unusable"]
        assert [one.startswith(text) for one, text in zip(left, expected, strict=True)] == [True] * 5
    # They are still known when the server does not run.
    async with crib.open() as project:
        assert server(project, "raw").left == left
        assert project.servers is not None
        assert f"raw: not usable: {left[0]}" in project.servers.unusable()
    assert [one.message for one in project_findings(project.place)] == [
        f"raw: not usable: {one}" for one in left
    ]


async def test_a_definition_whose_meaning_is_clear_is_repaired(crib: Crib) -> None:
    odd = RAW + textwrap.dedent("""
        def choice(name, kind):
            return {"type": "object", "properties": {name: {"type": kind}}, "required": [name]}

        UNION = {"anyOf": [choice("id", "integer"), choice("name", "string")]}

        def definitions():
            return [
                {"name": "union", "inputSchema": UNION},
                {"name": "bare"},
                {"name": "php", "inputSchema": {"type": "object", "properties": [], "required": None}},
                {"name": "empty", "inputSchema": [], "annotations": []},
                {"name": "null", "inputSchema": {"type": ["object", "null"]}, "outputSchema": None},
                {"name": "words", "inputSchema": {}, "outputSchema": {"type": "string"}, "title": 5},
            ]
        main()
    """)
    mount(crib, "raw", odd)
    async with opened(crib) as project:
        assert server(project, "raw").left == []
        for name in ("bare", "php", "empty", "null", "words"):
            assert (await project.call(f"raw__{name}")).unwrap() == "hello"
        assert (await project.call("raw__union", {"name": "x"})).unwrap() == "hello"
        failed(await project.call("raw__union", {"id": "x"}), "invalid_input")


async def test_an_entry_leaves_out_tools(crib: Crib) -> None:
    several = RAW + textwrap.dedent("""
        def definitions():
            return [dict(DEFINITIONS[0], name=name) for name in ("a", "b", "c")]
        main()
    """)
    mount(crib, "raw", several, tools=["a", "b", "z"], disabled_tools=["b"])
    async with opened(crib) as project:
        assert [name for name in project.toolset.names if name.startswith("raw__")] == ["raw__a"]
        failed(await project.call("raw__b"), "tool_not_found")
        assert server(project, "raw").left == ["'z': its entry names this tool, which it does not offer"]


async def test_a_result_that_its_own_schema_refuses_is_returned_with_a_warning(crib: Crib) -> None:
    unlike = RAW + textwrap.dedent("""
        def definitions():
            number = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
            return [dict(DEFINITIONS[0], name=name, outputSchema=number) for name in ("text", "wrong")]

        def called(message):
            if message["params"]["name"] == "text":
                return {"content": [{"type": "text", "text": "n is 5"}]}
            return {"content": [], "structuredContent": {"n": "five"}}

        main()
    """)
    mount(crib, "raw", unlike)
    async with opened(crib) as project:
        for name, value in (("text", "n is 5"), ("wrong", {"n": "five"})):
            result = await project.call(f"raw__{name}")
            assert result.unwrap() == value
            assert "the output does not match its schema" in result.warnings[0]


async def test_an_answer_that_is_not_one_of_mcp_is_an_error_in_our_words(crib: Crib) -> None:
    unlike = RAW + textwrap.dedent("""
        def called(message):
            return {"content": [{"type": "smell", "data": 5}]}
        main()
    """)
    mount(crib, "raw", unlike)
    async with opened(crib) as project:
        message = failed(await project.call("raw__hello"), "tool_failed")
        assert "its answer is not one of MCP: see `content.0" in message
        assert "pydantic" not in message


@pytest.mark.parametrize("first", ["id", "result"])
async def test_an_answer_that_cannot_be_read_ends_the_call_at_once(crib: Crib, first: str) -> None:
    broken = RAW + textwrap.dedent(f"""
        written = send
        how = None

        def called(message):
            global how
            how = message["params"]["arguments"]["how"]
            return {{}}

        def send(message):
            global how
            if how is None:
                return written(message)
            ends = 5000 if how == "deep" else 3
            parts = ['"id":%d' % message["id"], '"result":' + '{{"x":' * 5000 + "1" + "}}" * ends]
            if {first == "result"}:
                parts.reverse()
            print('{{"jsonrpc":"2.0",' + ",".join(parts) + "}}", flush=True)
            how = None

        main()
    """)
    mount(crib, "raw", broken)
    async with opened(crib) as project:
        for how in ("deep", "malformed"):
            result = await project.call("raw__hello", {"how": how}, timeout_ms=60_000)
            message = failed(result, "tool_failed")
            expected = "malformed, or nested too deeply" if first == "id" else "ended before it answered"
            assert expected in message
            await project.servers.ready(60) if project.servers else None
