"""A class is a tool: it has a key and a cache, and is opened and closed with the toolset.

Run it: python examples/class_tool.py
"""

from __future__ import annotations

import asyncio
from typing import Any

from toolcrib import Toolset


class WeatherTool:
    """Tells the weather; asks the service once per place."""

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
        self._cache: dict[str, float] = {}
        self.requests = 0

    async def open(self) -> None:
        """Called once, when the toolset is entered: the place to connect."""
        print("opened")

    async def close(self) -> None:
        """Called once, when the toolset is left."""
        print("closed")

    async def execute(self, arguments: dict[str, Any]) -> str:
        """One call; the arguments are checked and have their defaults."""
        place, unit = arguments["location"], arguments["unit"]
        if place not in self._cache:
            self._cache[place] = await self._fetch(place)
        celsius = self._cache[place]
        return f"{celsius:.0f} °C" if unit == "celsius" else f"{celsius * 9 / 5 + 32:.0f} °F"

    async def _fetch(self, place: str) -> float:
        """Stands for a request to a weather service, made with the key."""
        assert self._api_key
        self.requests += 1
        await asyncio.sleep(0.01)
        return float(len(place))


async def main() -> None:
    """Ask three times about two places."""
    weather = WeatherTool(api_key="not a real key")
    tools = Toolset()
    tools.register(weather)
    async with tools:
        for arguments in (
            {"location": "Oslo"},
            {"location": "Oslo", "unit": "fahrenheit"},
            {"location": "Rome!"},
        ):
            print(arguments, "→", await tools.execute("get_weather", arguments))
    print("requests to the service:", weather.requests)


if __name__ == "__main__":
    asyncio.run(main())
