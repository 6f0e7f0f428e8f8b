"""The model `scripted`: it answers by a list, so tests and demos need no key and no network."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelResponse
    from pydantic_ai.models import Model

__all__ = ["scripted_model"]

_PLACE = re.compile(r"\{\{(prompt|result|results)\}\}")


def scripted_model(script: Sequence[Mapping[str, Any]]) -> Model:
    """Return a model that gives the answers of a script: `text` and `calls` (`tool`, `arguments`).

    The number of the answer is that of the model's steps since the last prompt; the last one is repeated.
    """
    from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

    def answer(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
        return _response(script, messages)

    async def stream(
        messages: list[ModelMessage], _info: AgentInfo
    ) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
        from pydantic_ai.messages import TextPart, ToolCallPart

        for number, part in enumerate(_response(script, messages).parts):
            if isinstance(part, TextPart):
                for word in part.content.split(" "):
                    yield word if word is part.content else f"{word} "
                    await asyncio.sleep(0)
            elif isinstance(part, ToolCallPart):
                call = DeltaToolCall(part.tool_name, part.args_as_json_str(), part.tool_call_id)
                yield {number: call}

    return FunctionModel(answer, stream_function=stream, model_name="scripted")


def _response(script: Sequence[Mapping[str, Any]], messages: Sequence[ModelMessage]) -> ModelResponse:
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.usage import RequestUsage

    steps, words = _situation(messages)
    chosen = script[min(steps, len(script) - 1)]
    parts: list[Any] = []
    if chosen.get("text"):
        parts.append(TextPart(_filled(chosen["text"], words)))
    for position, call in enumerate(chosen.get("calls", ())):
        arguments = json.loads(_filled_json(call.get("arguments") or {}, words))
        parts.append(ToolCallPart(call["tool"], arguments, tool_call_id=f"call-{steps + 1}-{position + 1}"))
    text = sum(len(part.content) for part in parts if isinstance(part, TextPart))
    return ModelResponse(parts, usage=RequestUsage(input_tokens=len(messages), output_tokens=text // 4 + 1))


def _situation(messages: Sequence[ModelMessage]) -> tuple[int, dict[str, str]]:
    """Return the number of answers since the last prompt, and the texts for a script's placeholders."""
    from pydantic_ai.messages import ModelResponse, ToolReturnPart, UserPromptPart

    steps, prompt = 0, ""
    results: list[str] = []
    for message in messages:
        if isinstance(message, ModelResponse):
            steps += 1
            continue
        returned = [str(part.content) for part in message.parts if isinstance(part, ToolReturnPart)]
        results = returned or results
        for part in message.parts:
            if isinstance(part, UserPromptPart):
                steps, prompt = 0, str(part.content)
    last = results[-1] if results else ""
    return steps, {"prompt": prompt, "result": last, "results": "\n".join(results)}


def _filled(text: str, words: Mapping[str, str]) -> str:
    return _PLACE.sub(lambda found: words[found[1]], text)


def _filled_json(value: Any, words: Mapping[str, str]) -> str:
    return _filled(json.dumps(value), {name: json.dumps(word)[1:-1] for name, word in words.items()})
