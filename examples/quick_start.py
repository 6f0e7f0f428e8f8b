"""A function becomes a tool: its name, docstring and annotations are what the model sees.

Run it: python examples/quick_start.py
"""

from __future__ import annotations

import json
from typing import Literal

from toolcrib import Toolset

tools = Toolset()


@tools.tool
def convert(degrees: float, to: Literal["celsius", "fahrenheit"] = "celsius") -> float:
    """Convert a temperature.

    Args:
        degrees: The temperature in the other unit.
        to: The unit of the answer.
    """
    return (degrees - 32) * 5 / 9 if to == "celsius" else degrees * 9 / 5 + 32


def main() -> None:
    """Show the schema, then a good call and a bad one."""
    print("the model sees:", json.dumps(tools.schema()[0], indent=2))

    result = tools.call_sync("convert", {"degrees": 212})
    print("212 °F in °C:", result.value)

    result = tools.call_sync("convert", {"degrees": "hot", "to": "kelvin"})
    assert result.error is not None
    print("a bad call runs nothing:", result.error.code)
    for violation in result.error.violations:
        print(f"  {violation.path} {violation.message}")


if __name__ == "__main__":
    main()
