"""Debian's Chromium, driven by Playwright, without a network of its own choosing."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from typing import Any

from mrc_control.web import assets

ARGUMENTS = [
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def chromium() -> str | None:
    """Where it is: the whole one, or the one without windows."""
    return shutil.which("chromium") or shutil.which("chromium-headless-shell")


def lacking() -> str:
    """Why there can be no browser here; empty if there can."""
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return "playwright is missing: make setup-web"
    if chromium() is None:
        return "chromium is missing: make setup-web"
    missing = assets.missing()
    return f"{' and '.join(missing)} missing: make web-assets" if missing else ""


@contextlib.contextmanager
def browser() -> Iterator[Any]:
    """A browser (`playwright.sync_api.Browser`)."""
    from playwright.sync_api import sync_playwright

    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as play:
        made = play.chromium.launch(executable_path=chromium(), headless=True, args=[*ARGUMENTS, *sandbox])
        try:
            yield made
        finally:
            made.close()
