"""A class is a tool: it has a key and a cache, and is opened and closed with the project.

Run it: python examples/struct_tool.py
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from toolcrib import Agent, Project


class WeatherTool:
    """Returns the weather; asks the service once per place."""

    name = "get_weather"
    description = "Get current weather conditions for a location"
    input_schema: dict[str, Any] = {  # noqa: RUF012 - never changed
        "type": "object",
        "properties": {
            "location": {"type": "string", "description": "City name or coordinates"},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
        },
        "required": ["location"],
        "additionalProperties": False,
    }

    def __init__(self, api_key: str) -> None:
        self._api_key = api_key
        self._cache: dict[str, int] = {}
        self.requests = 0

    async def open(self) -> None:
        """Called once, when the project is entered: the place to connect."""
        print("opened")

    async def close(self) -> None:
        """Called once, when the project is left."""
        print("closed")

    async def execute(self, arguments: dict[str, Any]) -> str:
        """One call; the arguments are checked and have their defaults."""
        place = arguments["location"]
        if place not in self._cache:
            self.requests += 1  # stands for a request to a weather service, made with the key
            self._cache[place] = len(place)
        celsius = self._cache[place]
        return f"{celsius} °C" if arguments["unit"] == "celsius" else f"{celsius * 9 // 5 + 32} °F"


ASK = [{"calls": [{"tool": "get_weather", "arguments": {"location": "Oslo"}}]}]
AGAIN = [{"calls": [{"tool": "get_weather", "arguments": {"location": "Oslo", "unit": "fahrenheit"}}]}]
ANSWER = [{"text": "In Oslo it is {{result}}."}]


async def main() -> None:
    """Let an agent ask twice about one place."""
    weather = WeatherTool(api_key="not a real key")
    agent = Agent("forecaster", "scripted", tools=("get_weather",), script=(*ASK, *AGAIN, *ANSWER))
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, ".toolcrib").mkdir()
        project = Project.open(folder, accept="all", data=Path(folder, "data"))
        project.toolset.register(weather)
        async with project:
            print((await project.runs.run(None, agent, "How is Oslo?")).answer)
    print("requests to the service:", weather.requests)


if __name__ == "__main__":
    asyncio.run(main())
