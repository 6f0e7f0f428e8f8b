"""Draw every page of the web page in light, dark and phone width, of a project that is full, into build/.

The pictures of the README are two of them.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.browser import DESK, PHONE, Opened, chromium
from tests.filled import filled

README = {"found": "tools", "workflow": "workflow"}
"""Page to its picture in docs/pictures, which ends where the window ends."""
SHORT = ("tools", "found", "audit")
OUT = Path(__file__).resolve().parent.parent / "build" / "screenshots"
PICTURES = Path(__file__).resolve().parent.parent / "docs" / "pictures"
PAGES = ("approvals", "runs", "audit", "chat")
MAKING = ("new", "import", "trash")
OPERATIONS = ("usage", "servers", "secrets", "tokens", "policy", "workers", "messages", "machine")
LOOKS = {
    "light": ("light", DESK, "en"),
    "dark": ("dark", DESK, "en"),
    "phone": ("light", PHONE, "en"),
    "german": ("dark", PHONE, "de"),
}


def tool_path(opened: Opened, name: str) -> str:
    """Return the address of the page of a tool."""
    found = opened.server.send("GET", f"/tools/search?q={name}").json["tools"][0]
    return f"/tools/{found['bundleID']}/{found['slug']}/{found['version']}"


def settled(page: Page) -> None:
    """Wait until the page shows all that it asked for. Its stream of events never ends."""
    expect(page.locator(".loading")).to_have_count(0)
    expect(page.locator(".nav .badge")).to_be_visible()  # The calls that wait.


def main() -> None:
    """Draw the pages."""
    OUT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "settings.yml").write_text("{}")
        os.environ.update(TOOLCRIB_DATA=f"{folder}/data", TOOLCRIB_CONFIG=f"{folder}/settings.yml")
        with filled(Path(folder) / "shop") as server, chromium() as browser:
            for look, (scheme, size, language) in LOOKS.items():
                opened = Opened(browser, server, size=size, color_scheme=scheme, locale=language)
                opened.log_in()
                forecast, refund = (tool_path(opened, name) for name in ("weather_forecast", "orders_refund"))
                workflow, run = (
                    server.send("GET", f"/runs?agent={name}").json["runs"][0]["id"]
                    for name in ("workflow:closing", "helper")
                )
                pages = {
                    "tools": ("/tools", ".facets fieldset"),
                    "found": ("/tools?q=order", ".facets fieldset"),
                    "tool": (forecast, ".rjsf textarea"),
                    "waits": (refund, ".rjsf textarea"),
                    **{name: (f"/{name}", "main h1") for name in PAGES},
                    **{name: (f"/tools/{name}", "main h1") for name in MAKING},
                    **{name: (f"/operations/{name}", "main h1") for name in OPERATIONS},
                    "workflow": (f"/runs/{workflow}", ".step-box"),
                    "run": (f"/runs/{run}", ".timeline"),
                }
                for name, (path, shown) in pages.items():
                    opened.go(path)
                    opened.page.locator(shown).first.wait_for(state="attached")
                    settled(opened.page)
                    opened.page.screenshot(path=OUT / f"{name}-{look}.png", full_page=name not in SHORT)
                    if look == "light" and name in README:
                        opened.page.screenshot(path=PICTURES / f"{README[name]}.png")
                opened.page.keyboard.press("Control+k")
                opened.page.get_by_role("dialog").wait_for()
                opened.page.keyboard.type("stock")
                opened.page.get_by_role("option", name="stock").first.wait_for()
                settled(opened.page)
                opened.page.screenshot(path=OUT / f"palette-{look}.png")
                opened.context.close()
    print(f"screenshots: {OUT}")


if __name__ == "__main__":
    main()
