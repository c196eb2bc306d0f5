"""The page at / in a real browser against a real server: it shows what the calls say, and needs nobody else."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from core.served import Served
from core.text import normalise
from service.page.examples import examples
from tests.service.browser import CONTRAST, Seen, chromium, opened
from tests.service.server import Running, eventually, serving

PHONE = {"width": 360, "height": 740}
ROWS = "#ads > li"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:  # not of the session: its event loop would be in the way of other tests
    with chromium() as started:
        yield started


@pytest.fixture
def seen(browser: Browser, server: Running) -> Iterator[Seen]:
    """The page, with nothing asked."""
    with opened(browser, address(server)) as shown:
        yield shown


def address(server: Running, path: str = "/") -> str:
    return f"http://127.0.0.1:{server.port}{path}"


def asked(server: Running, query: str, more: str = "") -> str:
    return address(server, f"/?q={quote(query)}{more}")


def tabled(served: Served) -> str:
    return next(iter(served.table.rows()))[0]


def shown_ads(page: Page) -> list[tuple[str, str]]:
    rows = page.locator(ROWS).all()
    return [(str(row.get_attribute("data-ad")), row.locator("summary > .probability").inner_text()) for row in rows]


def said_ads(answer: dict[str, Any]) -> list[tuple[str, str]]:
    return [(ad["ad"], f"{100 * ad['relevance']:.2f} %") for ad in answer["ads"]]


def wait_for_reasons(page: Page) -> None:
    """Until no row waits for /explain."""
    expect(page.locator(".why > .muted", has_text="Asking why")).to_have_count(0)


def test_a_query_shows_the_ads_of_predict_in_their_order_with_their_probabilities(
    seen: Seen, server: Running, served: Served
) -> None:
    query = tabled(served)
    answer = server.predict(query=query).json()
    seen.page.get_by_label("Query").fill(query)
    expect(seen.page.locator(ROWS)).to_have_count(len(answer["ads"]))
    assert shown_ads(seen.page) == said_ads(answer)
    status = seen.page.get_by_role("status").inner_text()
    assert f"{len(answer['ads'])} ads" in status
    assert re.search(r"[\d.]+ ms to answer\s+[\d.]+ ms in the service\s+[\d.]+ ms round trip", status)
    badges = seen.page.locator(f"{ROWS} .badge").all_inner_texts()
    words = {"both": "table + model", "model": "model", "table": "table"}
    assert badges == [words[ad["source"]] for ad in answer["ads"]]


def test_a_row_has_the_title_the_words_and_the_paths_of_explain(
    browser: Browser, server: Running, served: Served
) -> None:
    query = tabled(served)
    ad = server.predict(query=query, k=1).json()["ads"][0]["ad"]
    said = server.http.get("/explain", params={"query": query, "ad": ad}).json()
    with opened(browser, asked(server, query, "&k=1")) as seen:
        row = seen.page.locator(ROWS)
        expect(row.locator(".name")).to_have_text(said["title"])
        chips = row.locator("summary .chip")
        for chip, word in zip(chips.all(), said["words"][:5], strict=False):
            expect(chip).to_contain_text(word["word"])
            expect(chip.locator(".push")).to_have_text(f"{'−' if word['push'] < 0 else '+'}{abs(word['push']):.2f}")
        assert chips.count() >= min(5, len(said["words"])) > 0
        row.locator("summary").click()
        for tree, of_model in zip(row.locator(".tree").all(), said["model"]["trees"], strict=True):
            shown = tree.locator(".probability").all_inner_texts()
            assert shown == [f"{100 * edge['probability']:.2f} %" for edge in of_model["path"]]
        expect(row.locator(".why")).to_contain_text(f"Place {said['table']['rank']} in the query's row")


def test_the_page_is_used_without_a_mouse(seen: Seen, server: Running, served: Served) -> None:
    page = seen.page
    expect(page.get_by_label("Query")).to_be_focused()
    page.keyboard.type(tabled(served))
    page.keyboard.press("Enter")
    rows = page.locator(ROWS)
    expect(rows.first).to_be_visible()
    wait_for_reasons(page)
    first = rows.first.locator("summary")
    for stop in (page.get_by_role("button", name="Ask"), page.locator(".options > summary"), first):
        page.keyboard.press("Tab")
        expect(stop).to_be_focused()
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate(outline) == "solid"
    page.keyboard.press("Enter")
    expect(rows.first.locator(".why")).to_be_visible()
    page.keyboard.press("Space")
    expect(rows.first.locator(".why")).to_be_hidden()
    page.keyboard.press("ArrowDown")
    expect(rows.nth(1).locator("summary")).to_be_focused()
    page.keyboard.press("/")
    expect(page.get_by_label("Query")).to_be_focused()
    assert page.get_by_label("Query").input_value() == tabled(served)
    page.keyboard.press("ArrowDown")
    expect(first).to_be_focused()


def test_the_address_holds_the_query_and_back_goes_to_the_one_before(
    seen: Seen, server: Running, served: Served
) -> None:
    rows = iter(served.table.rows())
    first, second = next(rows)[0], next(rows)[0]
    page, field = seen.page, seen.page.get_by_label("Query")
    for query in (first, second):
        field.fill("")
        field.press_sequentially(query, delay=5)
        field.press("Enter")
        page.wait_for_url(asked(server, query).replace("%20", "+"))
        expect(page.locator(f"{ROWS} .name").first).to_be_visible()
    page.go_back()
    expect(field).to_have_value(first)
    expected = said_ads(server.predict(query=first).json())
    expect(page.locator(ROWS).first).to_have_attribute("data-ad", expected[0][0])
    assert shown_ads(page) == expected
    page.reload()
    expect(field).to_have_value(first)
    expect(page.locator(ROWS)).to_have_count(len(expected))


def test_options_are_asked_for_and_shared(browser: Browser, server: Running, served: Served) -> None:
    query = tabled(served)
    with opened(browser, asked(server, query)) as seen:
        seen.page.get_by_text("Options").click()
        seen.page.get_by_label("Ads at most").fill("3")
        seen.page.get_by_label("Source").select_option("model")
        seen.page.get_by_label("Order").select_option("revenue")
        expect(seen.page.locator(".worth")).to_have_count(3)
        shared = seen.page.url
    answer = server.predict(query=query, k=3, source="model", rank="revenue").json()
    with opened(browser, shared) as seen:
        expect(seen.page.locator(ROWS)).to_have_count(3)
        assert shown_ads(seen.page) == said_ads(answer)


def test_an_older_answer_never_takes_the_place_of_a_newer_one(seen: Seen, server: Running, served: Served) -> None:
    rows = iter(served.table.rows())
    slow, quick = next(rows)[0], next(rows)[0]
    held = list[Route]()

    def hold(route: Route) -> None:
        if slow in (route.request.post_data or ""):
            held.append(route)
        else:
            route.continue_()

    seen.page.route("**/predict", hold)
    field = seen.page.get_by_label("Query")
    field.fill(slow)
    with seen.page.expect_request("**/predict"):
        field.press("Enter")
    expected = said_ads(server.predict(query=quick).json())
    field.fill(quick)
    expect(seen.page.locator(ROWS)).to_have_count(len(expected))
    old = server.predict(query=slow)
    assert said_ads(old.json()) != expected
    for route in held:
        route.fulfill(json=old.json())
    wait_for_reasons(seen.page)
    assert shown_ads(seen.page) == expected


def test_markup_from_outside_stays_text(seen: Seen, served: Served) -> None:
    evil = "<img src=x onerror=\"document.title='taken'\"><b>bold</b>"

    def alter(route: Route) -> None:
        said = route.fetch().json()
        said |= {"title": evil, "url": "javascript:alert(1)", "words": [{"word": evil, "push": 1.0}]}
        route.fulfill(json=said)

    seen.page.route("**/explain?*", alter)
    query = tabled(served)
    seen.page.get_by_label("Query").fill(query)
    row = seen.page.locator(ROWS).first
    expect(row.locator(".name")).to_have_text(evil)
    expect(row.locator("summary .chip").first).to_contain_text(evil)
    row.locator("summary").click()
    expect(row.locator(".url")).to_have_text("javascript:alert(1)")
    assert seen.page.locator("#ads img, #ads b, #ads a").count() == 0
    assert seen.page.title() == f"{query} · xreg"


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_nothing_comes_from_elsewhere_and_nothing_is_complained_about(
    browser: Browser, server: Running, served: Served, path: str
) -> None:
    with opened(browser, address(server, f"{path}?q={quote(tabled(served))}")) as seen:
        expect(seen.page.locator("details summary").nth(1)).to_be_visible()
        if path == "/":
            expect(seen.page.locator(".figures")).to_contain_text("WP@5")
            wait_for_reasons(seen.page)
        seen.page.wait_for_load_state("networkidle")
    assert len(seen.requests) > 4
    assert [url for url in seen.requests if not url.startswith((address(server), "data:"))] == []
    assert seen.complaints == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", ["/", "/docs"])
def test_every_text_is_told_from_its_ground_in_both_schemes(
    browser: Browser, server: Running, served: Served, scheme: str, path: str
) -> None:
    target = address(server, f"{path}?q={quote(tabled(served))}&k=2")
    with opened(browser, target, color_scheme=scheme, reduced_motion="reduce") as seen:
        expect(seen.page.locator("details summary").nth(1)).to_be_visible()
        if path == "/":
            wait_for_reasons(seen.page)
            expect(seen.page.locator(".figures")).to_be_visible()
        seen.page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        ground = seen.page.evaluate("getComputedStyle(document.body).backgroundColor")
        contrasts = seen.page.evaluate(CONTRAST)
    assert (sum(map(int, re.findall(r"\d+", ground))) > 384) == (scheme == "light")
    assert len(contrasts) > 40
    assert [(what, round(value, 2)) for what, value in contrasts if value < 4.5] == []


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_a_phone_need_not_scroll_sideways(browser: Browser, server: Running, served: Served, path: str) -> None:
    target = address(server, f"{path}?q={quote(tabled(served))}")
    with opened(browser, target, viewport=PHONE, is_mobile=True, has_touch=True) as seen:
        expect(seen.page.locator("details summary").nth(1)).to_be_visible()
        if path == "/":
            wait_for_reasons(seen.page)
        seen.page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        if path == "/":
            seen.page.get_by_role("button", name="Ask").tap()
            expect(seen.page.locator(ROWS).first).to_be_visible()


def test_a_degraded_answer_says_so(seen: Seen, served: Served) -> None:
    hurried = {"X-Deadline-Ms": "0.000001"}
    seen.page.route("**/predict", lambda route: route.continue_(headers={**route.request.headers, **hurried}))
    seen.page.get_by_label("Query").fill(tabled(served))
    expect(seen.page.locator(ROWS).first).to_be_visible()
    expect(seen.page.locator("#notice")).to_contain_text("degraded")


def test_the_foot_names_the_release_and_its_figures(seen: Seen, server: Running) -> None:
    listed = server.http.get("/releases").json()
    [release] = [one for one in listed["releases"] if one["served"]]
    foot = seen.page.locator("#release")
    expect(foot).to_contain_text(release["name"])
    expect(foot.locator(".figures")).to_contain_text(f"{release['figures']['WP@5']:.1f} %")
    foot.get_by_text("All figures").click()
    assert foot.locator("tr").count() == len(release["figures"])


def test_the_empty_page_offers_queries_that_the_release_answers(seen: Seen, server: Running, served: Served) -> None:
    links = seen.page.locator(".example")
    expect(links).to_have_count(3)
    titles = [normalise(title or "") for title in served.texts["title"].to_pylist()]
    offered = links.all_inner_texts()
    assert offered == examples(served)
    for query in offered:
        assert any(query in title for title in titles)
        assert server.predict(query=query).json()["ads"]
    links.first.click()
    expect(seen.page.get_by_label("Query")).to_have_value(offered[0])
    expect(seen.page.locator(ROWS).first).to_be_visible()


@pytest.mark.parametrize(
    ("query", "more", "told"),
    [
        ("☃", "", "no letter and no digit"),
        ("qqqqzz", "", "knows none of these words"),
        ("qqqqzz", "&source=table", "no row for this query"),
        ("TABLED", "&threshold=1", "No ad is as likely"),
        ("TABLED", "&k=0", "/k: "),
    ],
)
def test_no_ads_have_a_reason_in_words(
    browser: Browser, server: Running, served: Served, query: str, more: str, told: str
) -> None:
    with opened(browser, asked(server, query.replace("TABLED", tabled(served)), more)) as seen:
        expect(seen.page.locator("#notice")).to_contain_text(told)
        expect(seen.page.locator(ROWS)).to_have_count(0)


def test_a_service_without_a_release_that_gets_one_and_is_gone(
    browser: Browser, releases: Path, served: Served, tmp_path: Path
) -> None:
    """The page says what is the matter each time, and asking again helps once it is over."""
    query, aside, there = tabled(served), tmp_path / "aside", tmp_path / "releases"
    there.mkdir()
    shutil.copytree(releases, aside)
    with (
        serving(there, tmp_path / "log", until="/health/live", watch_seconds="0.1") as late,
        opened(browser, asked(late, query)) as seen,
    ):
        notice, again = seen.page.locator("#notice"), seen.page.get_by_role("button", name="Try again")
        expect(notice).to_contain_text(late.predict(query=query).json()["detail"])
        for part in sorted(aside.iterdir(), key=lambda path: path.name == "CURRENT"):
            part.rename(there / part.name)
        eventually(lambda: late.http.get("/health/ready").status_code == 200)
        again.click()
        expect(seen.page.locator(ROWS).first).to_be_visible()
        expect(notice).to_be_hidden()
        seen.page.context.set_offline(True)
        seen.page.get_by_role("button", name="Ask").click()
        expect(notice).to_contain_text("This device is offline")
        seen.page.context.set_offline(False)
        expect(seen.page.locator(ROWS).first).to_be_visible()
        late.process.terminate()
        late.process.wait(30)
        seen.page.get_by_role("button", name="Ask").click()
        expect(notice).to_contain_text("The service does not answer")
        expect(seen.page.locator(ROWS)).to_have_count(0)


def test_the_list_of_calls_has_every_call_of_the_document(browser: Browser, server: Running) -> None:
    document = server.http.get("/openapi.json").json()
    with opened(browser, address(server, "/docs")) as seen:
        calls = seen.page.locator(".call")
        expect(calls.first).to_be_visible()
        shown = calls.evaluate_all("(all) => all.map((one) => one.id)")
        assert sorted(shown) == sorted(f"{method}{path}" for path, of in document["paths"].items() for method in of)
        predict = seen.page.locator('[id="post/predict"]')
        for field in document["components"]["schemas"]["PredictRequest"]["properties"]:
            expect(predict.locator("td code", has_text=re.compile(f"^{field}$")).first).to_be_visible()
        expect(predict.locator("pre")).to_contain_text(f"http://127.0.0.1:{server.port}/predict")


PARTS = ("style.css", "make.js", "calls.js", "rows.js", "release.js", "page.js", "docs.js")
FILES = ["/", "/docs", *(f"/page/{name}" for name in PARTS)]


@pytest.mark.parametrize("path", FILES)
def test_a_file_is_sent_once_to_whoever_keeps_it(server: Running, path: str) -> None:
    first = server.http.get(path)
    assert (first.status_code, first.headers["cache-control"]) == (200, "no-cache")
    assert first.headers["x-content-type-options"] == "nosniff"
    assert first.headers["content-security-policy"].startswith(
        "default-src 'none'; script-src 'self'; style-src 'self'"
    )
    for tag in (first.headers["etag"], f'"other", W/{first.headers["etag"]}'):
        again = server.http.get(path, headers={"If-None-Match": tag})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", first.headers["etag"])
    assert server.http.get(path, headers={"If-None-Match": '"other"'}).status_code == 200
    assert server.http.head(path).status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "/page/routes.py",
        "/page/index.html",
        "/page/..%2fapp.py",
        "/page/%2e%2e/app.py",
        "/page/%2fetc%2fpasswd",
        "/page/",
    ],
)
def test_no_other_file_is_served(server: Running, path: str) -> None:
    answer = server.http.get(path)
    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")
