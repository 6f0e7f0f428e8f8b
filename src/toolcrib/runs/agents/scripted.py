"""The model `scripted`: it answers by a list, so tests and demos need no key and no network."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from toolcrib.runs.agents.conversation import SUMMARISE

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelResponse
    from pydantic_ai.models import Model

_WORD = re.compile(r"\S+\s*|\s+")
_PLACE = re.compile(r"\{\{(prompt|result|results)\}\}")


def scripted_model(script: Sequence[Mapping[str, Any]], step: int) -> Model:
    """Return a model that gives the answer of this number: `text` and `calls` (`tool`, `arguments`).

    After the last one it gives the last one again. Asked for a summary, it gives one of its own.
    """
    from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

    def answer(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
        return _response(script, step, messages)

    async def stream(
        messages: list[ModelMessage], _info: AgentInfo
    ) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
        from pydantic_ai.messages import TextPart, ToolCallPart

        for number, part in enumerate(_response(script, step, messages).parts):
            if isinstance(part, TextPart):
                for word in _WORD.findall(part.content):
                    yield word
                    await asyncio.sleep(0)
            elif isinstance(part, ToolCallPart):
                arguments = part.args_as_json_str()
                yield {number: DeltaToolCall(part.tool_name, arguments, tool_call_id=part.tool_call_id)}

    return FunctionModel(answer, stream_function=stream, model_name="scripted")


def _response(
    script: Sequence[Mapping[str, Any]], step: int, messages: Sequence[ModelMessage]
) -> ModelResponse:
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.usage import RequestUsage

    words = _words(messages)
    chosen = script[min(step, len(script) - 1)]
    if words["prompt"] == SUMMARISE:
        chosen = {"text": f"{len(messages)} messages, the last result: {{{{result}}}}"}
    parts: list[Any] = []
    if chosen.get("text"):
        parts.append(TextPart(_filled(chosen["text"], words)))
    for position, call in enumerate(chosen.get("calls", ())):
        arguments = json.loads(_filled_json(call.get("arguments") or {}, words))
        parts.append(ToolCallPart(call["tool"], arguments, tool_call_id=f"call-{step + 1}-{position + 1}"))
    text = sum(len(part.content) for part in parts if isinstance(part, TextPart))
    return ModelResponse(parts, usage=RequestUsage(input_tokens=len(messages), output_tokens=text // 4 + 1))


def _words(messages: Sequence[ModelMessage]) -> dict[str, str]:
    """Return the texts for a script's placeholders."""
    from pydantic_ai.messages import ModelResponse, ToolReturnPart, UserPromptPart

    prompt = ""
    results: list[str] = []
    for message in messages:
        if isinstance(message, ModelResponse):
            continue
        returned = [str(part.content) for part in message.parts if isinstance(part, ToolReturnPart)]
        results = returned or results
        prompts = [str(part.content) for part in message.parts if isinstance(part, UserPromptPart)]
        prompt = prompts[-1] if prompts else prompt
    # A turn may have several calls; `results` is another name for the same.
    return {"prompt": prompt, **dict.fromkeys(("result", "results"), "\n".join(results))}


def _filled(text: str, words: Mapping[str, str]) -> str:
    return _PLACE.sub(lambda found: words[found[1]], text)


def _filled_json(value: Any, words: Mapping[str, str]) -> str:
    # Escaped, because a result with quotes would otherwise end the text that it is put into.
    return _filled(json.dumps(value), {name: json.dumps(word)[1:-1] for name, word in words.items()})
