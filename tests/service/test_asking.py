"""/predict/batch and /explain over a real socket: they say what /predict says, and why."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import pytest

from core.served import Served
from tests.service.server import Running
from tests.service.test_predict import WISHES, queries


def batch(server: Running, **asked: Any) -> Any:
    return server.http.post("/predict/batch", json=asked)


@pytest.mark.parametrize("wishes", [asked for asked, _ in WISHES], ids=str)
def test_a_batch_says_what_its_queries_get_one_by_one(server: Running, served: Served, wishes: dict[str, Any]) -> None:
    asked = queries(served)
    answer = batch(server, queries=asked, **wishes)
    assert answer.status_code == 200, answer.text
    alone = [server.predict(query=query, **wishes).json() for query in asked]
    assert answer.json()["answers"] == [{"ads": one["ads"], "reason": one["reason"]} for one in alone]
    assert answer.json()["release"] == alone[0]["release"] == answer.headers["x-release"]


def test_a_batch_knows_exclude_and_candidates(server: Running, served: Served) -> None:
    asked = queries(served)[:5]
    best = [ad["ad"] for ad in server.predict(query=asked[0]).json()["ads"]]
    for wishes in ({"exclude": best[:3]}, {"candidates": best[:3]}, {"candidates": ["nobody's"]}):
        answers = batch(server, queries=asked, **wishes).json()["answers"]
        assert [one["ads"] for one in answers] == [server.predict(query=q, **wishes).json()["ads"] for q in asked]


@pytest.mark.parametrize(
    ("asked", "pointer"),
    [
        ({"queries": []}, "/queries"),
        ({"queries": ["a"] * 257}, "/queries"),
        ({"queries": ["a", 1]}, "/queries/1"),
        ({"queries": ["a" * 1001]}, "/queries/0"),
        ({"queries": "a"}, "/queries"),
        ({}, "/queries"),
        ({"queries": ["a"], "query": "a"}, "/query"),
        ({"queries": ["a"], "k": 0}, "/k"),
        ({"queries": ["a"], "exclude": ["b", "b"]}, "/exclude/1"),
    ],
)
def test_a_batch_that_cannot_be_is_refused_with_its_field(server: Running, asked: dict[str, Any], pointer: str) -> None:
    answer = batch(server, **asked)
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, pointer)


def test_a_batch_is_json_of_a_bounded_size(server: Running) -> None:
    plain = server.http.post("/predict/batch", content=b"{}", headers={"Content-Type": "text/plain"})
    large = server.http.post("/predict/batch", content=b" " * (2**20 + 1), headers={"Content-Type": "application/json"})
    assert (plain.status_code, large.status_code) == (415, 413)


def test_a_deadline_narrows_the_beam_of_a_batch(server: Running, served: Served) -> None:
    asked = queries(served)
    late = server.http.post("/predict/batch", json={"queries": asked}, headers={"X-Deadline-Ms": "0.000001"}).json()
    assert late["degraded"] is True
    assert late["answers"] == batch(server, queries=asked, beam=1).json()["answers"]


def explained(server: Running, query: str, ad: str) -> dict[str, Any]:
    answer = server.http.get("/explain", params={"query": query, "ad": ad})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_explain_adds_up_to_what_the_model_says(server: Running, served: Served) -> None:
    for query in queries(served)[:6]:
        for ad in server.predict(query=query, k=3).json()["ads"]:
            said = explained(server, query, ad["ad"])
            [only] = server.predict(query=query, candidates=[ad["ad"]]).json()["ads"]
            assert (said["relevance"], said["source"]) == (only["relevance"], only["source"])
            model = said["model"]
            assert math.isclose(model["score"], sum(t["score"] for t in model["trees"]) / len(model["trees"]))
            pushes = defaultdict[str, float](float)
            for tree in model["trees"]:
                assert math.isclose(tree["score"], tree["factor"] * tree["path"][-1]["probability"] * scale(served))
                for edge in tree["path"]:
                    for word in edge["words"]:
                        pushes[word["word"]] += word["push"] / len(model["trees"])
            assert {w["word"]: pytest.approx(w["push"]) for w in said["words"]} == pushes
            assert [w["push"] for w in said["words"]] == sorted(
                (w["push"] for w in said["words"]), key=abs, reverse=True
            )
            assert pushes.keys() <= set(query.split())


def scale(served: Served) -> float:
    return float(served.engine.model.manifest["scale"])


def test_explain_says_what_the_table_says_and_who_the_ad_is(server: Running, served: Served) -> None:
    query, row = next(iter(served.table.rows()))
    ad = served.catalogue.ids.name(int(row.ads[1]))
    said = explained(server, query.upper(), ad)
    assert said["query"] == query
    assert said["table"] == {"rank": 2, "score": pytest.approx(float(row.scores[1]))}
    titles = served.catalogue.texts(["title", "url"]).take([int(row.ads[1])]).to_pylist()
    assert {"title": said["title"], "url": said["url"]} == titles[0]


def test_explain_says_nothing_about_what_nobody_knows(server: Running, served: Served) -> None:
    ad = served.catalogue.ids.name(int(served.catalogue.live.argmax()))
    said = explained(server, "zzz", ad)
    assert (said["relevance"], said["source"], said["model"], said["table"]) == (0.0, None, None, None)


def test_explain_needs_a_query_and_an_ad_of_the_catalogue(server: Running) -> None:
    missing = server.http.get("/explain", params={"query": "a", "ad": "nobody's"})
    assert (missing.status_code, missing.json()["type"]) == (404, "urn:xreg:problem:unknown-ad")
    for given, pointer in (
        ({"query": "a"}, "/ad"),
        ({"ad": "a"}, "/query"),
        ({"query": "a" * 1001, "ad": "a"}, "/query"),
    ):
        answer = server.http.get("/explain", params=given)
        assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
        assert answer.json()["errors"][0]["pointer"] == pointer


def test_the_releases_come_with_their_figures(server: Running) -> None:
    listed = server.http.get("/releases").json()["releases"]
    assert all(release["figures"]["WP@5"] > 0 for release in listed)
