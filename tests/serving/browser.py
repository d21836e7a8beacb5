"""A real browser: Debian's Chromium, or the one of HEADRACE_TEST_BROWSER."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, Dialog, Page, expect, sync_playwright

_NAMES = ("chromium", "chromium-browser", "google-chrome")
PHONE = (390, 844)
DESK = (1280, 900)
_PATIENCE_MS = 30_000


def find_browser() -> str | None:
    """Return the path of a browser that is installed here."""
    chosen = os.environ.get("HEADRACE_TEST_BROWSER")
    return chosen or next((path for name in _NAMES if (path := shutil.which(name))), None)


@contextmanager
def open_browser() -> Iterator[Browser]:
    # As root Chromium does not start in its sandbox; it opens no page but ours.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    expect.set_options(timeout=_PATIENCE_MS)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=find_browser(), args=arguments)
        yield browser
        browser.close()


class Watched:
    """A page that records its browser's errors."""

    def __init__(self, browser: Browser, *, size: tuple[int, int] = DESK) -> None:
        self.page: Page = browser.new_page(viewport={"width": size[0], "height": size[1]})
        self.complaints: list[str] = []
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", lambda message: self.complaints.append(message.text) if message.type == "error" else None)
        self.page.on("dialog", self._refuse)

    def _refuse(self, dialog: Dialog) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def policy_complaints(self) -> list[str]:
        return [complaint for complaint in self.complaints if "Content Security Policy" in complaint or "dialog" in complaint]

    def overflow(self) -> int:
        """By how many pixels the document is wider than the viewport."""
        return int(self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))
