"""Debian's Chromium, driven over its own protocol: what people see, not what we believe they see."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

_CHROMIUM = shutil.which("chromium")
_FLAGS = [  # the only pages it opens are ours; nothing but our requests is to leave it
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


class Seen(NamedTuple):
    """A page, every address it asked for, and what it complained about."""

    page: Page
    requests: list[str]
    complaints: list[str]


@contextmanager
def chromium() -> Iterator[Browser]:
    if _CHROMIUM is None:
        pytest.skip("chromium is not installed (Debian's package of that name)")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=_CHROMIUM, args=_FLAGS)
        yield browser
        browser.close()


@contextmanager
def opened(browser: Browser, address: str, **context: Any) -> Iterator[Seen]:
    """A page in a window of its own, watched from its first request on."""
    window = browser.new_context(**context)
    page = window.new_page()
    seen = Seen(page, [], [])
    page.on("request", lambda request: seen.requests.append(request.url))
    page.on("console", lambda said: seen.complaints.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: seen.complaints.append(str(error)))
    page.goto(address)
    yield seen
    window.close()


CONTRAST = """() => {
  const parts = (text) => text.match(/[\\d.]+/g).map(Number);
  const linear = (v) => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
  const light = (colour) => colour.slice(0, 3).map((v) => linear(v / 255))
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = parts(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const written = (one) => [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  const texts = [...document.querySelectorAll("body *")].filter((one) =>
    one.checkVisibility() && (one.matches("input, select") || written(one)));
  return texts.map((one) => {
    const [a, b] = [light(parts(getComputedStyle(one).color)), light(ground(one))];
    const contrast = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    return [`${one.tagName}.${one.className} ${one.textContent.slice(0, 30)}`, contrast];
  });
}"""  # every visible text and its contrast with what lies under it, as WCAG 2 defines it
