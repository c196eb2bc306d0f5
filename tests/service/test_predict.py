"""POST /predict over a real socket: the answers are those of the release, and carry what they promise."""

from __future__ import annotations

from typing import Any

import pytest

from core.merge import SOURCES
from core.served import Found, Served, Wanted
from tests.service.server import Running


def expected(served: Served, found: Found) -> list[dict[str, Any]]:
    rows = zip(*(column.tolist() for column in found.merged), found.worth.tolist(), strict=True)
    return [
        {
            "ad": served.catalogue.ids.name(ad),
            "relevance": pytest.approx(score, abs=1e-8),
            "source": SOURCES[source],
            "rank_score": pytest.approx(worth, abs=1e-8),
        }
        for ad, score, source, worth in rows
    ]


def queries(served: Served) -> list[str]:
    known = [query for query, _ in served.table.rows()][:20]
    return [*known, known[0].upper() + "!", f"{known[1]} {known[2]}", "zzz", "", "☃", "ein Füßchen 東京"]


WISHES: list[tuple[dict[str, Any], Wanted]] = [
    ({}, Wanted()),
    ({"k": 3, "threshold": 0.02}, Wanted(3, 0.02)),
    ({"k": 100, "beam": 1}, Wanted(100, beam=1)),
    ({"source": "table"}, Wanted(source="table")),
    ({"source": "model", "beam": 100}, Wanted(source="model", beam=100)),
    ({"rank": "revenue", "k": 5}, Wanted(5, rank="revenue")),
]


@pytest.mark.parametrize(("asked", "wanted"), WISHES, ids=lambda value: str(value) if isinstance(value, dict) else "")
def test_answers_are_those_of_the_release(
    server: Running, served: Served, asked: dict[str, Any], wanted: Wanted
) -> None:
    for query in queries(served):
        answer = server.predict(query=query, **asked)
        found = served.ask(query, wanted)
        assert answer.status_code == 200, answer.text
        assert answer.json() == {
            "release": served.catalogue.path.parent.name,
            "degraded": False,
            "ads": expected(served, found),
            "reason": found.reason,
        }


def test_excluded_ads_are_not_answered_and_others_take_their_place(server: Running, served: Served) -> None:
    query = queries(served)[0]
    best = [ad["ad"] for ad in server.predict(query=query, k=20).json()["ads"]]
    answer = server.predict(query=query, k=10, exclude=[*best[:5], "nobody's"]).json()
    assert answer["ads"] == expected(served, served.ask(query, Wanted(exclude=served.numbers(best[:5]))))
    assert len(answer["ads"]) == 10
    assert not {ad["ad"] for ad in answer["ads"]} & set(best[:5])


def test_only_candidates_are_scored_few_on_the_loop_and_many_in_a_thread(server: Running, served: Served) -> None:
    query, everybody = queries(served)[0], list(served.catalogue.ids.all())
    best = [ad["ad"] for ad in server.predict(query=query).json()["ads"]]
    few = server.predict(query=query, candidates=[*best[:2], "nobody's"]).json()
    assert {ad["ad"] for ad in few["ads"]} == set(best[:2])
    many = server.predict(query=query, candidates=everybody[:200]).json()
    assert many["ads"]
    assert {ad["ad"] for ad in many["ads"]} <= set(everybody[:200])
    assert server.predict(query=query, candidates=["nobody's"]).json() == {
        "release": few["release"], "degraded": False, "ads": [], "reason": "nothing_found",
    }  # fmt: skip


def test_features_are_answered_as_the_model_answers_their_text(server: Running, served: Served) -> None:
    query = queries(served)[0]
    indices, values = served.text.features(query)
    by_text = server.predict(query=query, source="model").json()
    by_features = server.predict(features={"indices": indices.tolist(), "values": values.tolist()}).json()
    assert by_features == by_text


def test_every_answer_says_who_asked_what_answered_and_how_long_it_took(server: Running, served: Served) -> None:
    asked = {"query": "not asked by anybody else"}
    mine = server.http.post("/predict", json=asked, headers={"X-Request-Id": "mine-1.2_3"})
    assert mine.headers["x-request-id"] == "mine-1.2_3"
    assert mine.headers["x-release"] == mine.json()["release"] == served.catalogue.path.parent.name
    assert mine.headers["server-timing"].startswith("answer;dur=")
    again = server.http.post("/predict", json=asked)
    assert again.headers["server-timing"].startswith("cache;desc=hit, total;dur=")
    assert (again.json(), again.headers["x-release"]) == (mine.json(), mine.headers["x-release"])
    bad = server.http.post("/predict", json={}, headers={"X-Request-Id": "no spaces, please"})
    other = server.http.get("/health/live")
    given = {bad.headers["x-request-id"], other.headers["x-request-id"]}
    assert len(given) == 2
    assert "no spaces, please" not in given
    assert "total;dur=" in other.headers["server-timing"]


def test_a_deadline_that_cannot_be_met_narrows_the_beam(server: Running, served: Served) -> None:
    query = queries(served)[0]
    late = server.http.post("/predict", json={"query": query}, headers={"X-Deadline-Ms": "0.000001"}).json()
    assert late["degraded"] is True
    assert late["ads"] == expected(served, served.ask(query, Wanted(beam=1)))
    easy = server.http.post("/predict", json={"query": query}, headers={"X-Deadline-Ms": "60000"}).json()
    assert easy["degraded"] is False


@pytest.mark.parametrize("deadline", ["0", "-1", "soon", "1e3", "", "nan"])
def test_a_deadline_is_a_number_above_0(server: Running, deadline: str) -> None:
    answer = server.http.post("/predict", json={"query": "a"}, headers={"X-Deadline-Ms": deadline})
    assert answer.status_code == 400
    assert "X-Deadline-Ms must be a number above 0" in answer.json()["detail"]


def test_the_table_is_there_by_query(server: Running, served: Served) -> None:
    query, row = next(iter(served.table.rows()))
    answer = server.http.get(f"/table/{query.upper()}").json()
    assert answer["query"] == query
    assert [entry["ad"] for entry in answer["ads"]] == [served.catalogue.ids.name(int(ad)) for ad in row.ads]
    missing = server.http.get("/table/not/there")
    assert (missing.status_code, missing.headers["content-type"]) == (404, "application/problem+json")
    assert missing.json()["type"] == "urn:xreg:problem:not-in-table"


def test_long_requests_are_answered_and_refused_from_their_thread(server: Running, served: Served) -> None:
    n = served.text.n_features
    indices = list(range(min(n, 60)))
    assert len(indices) > 50  # as many as go to a thread
    asked = {"features": {"indices": indices, "values": [1.0] * len(indices)}, "k": 3}
    assert len(server.predict(**asked).json()["ads"]) == 3
    asked["features"] = {"indices": [*indices[1:], n], "values": [1.0] * len(indices)}
    answer = server.predict(**asked)
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, f"/features/indices/{len(indices) - 1}")
