"""One flipped bit or a truncation in any file of a release: it is refused as an error of ours, and never served."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.errors import XregError
from core.releases import current, link
from service.holder import open_release
from tests.service.server import TOKEN, copied, point_to, serving

CASES = 500
ADMIN = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def release(releases: Path) -> Path:
    return releases / str(current(releases))


def files_of(release: Path) -> list[str]:
    return sorted(str(path.relative_to(release)) for path in release.rglob("*") if path.is_file())


def damaged(data: bytes, chance: random.Random) -> bytes:
    """One bit flipped, or cut off somewhere."""
    if chance.random() < 0.5 or not data:
        return data[: chance.randrange(len(data))]
    at = chance.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << chance.randrange(8))]) + data[at + 1 :]


def cases(files: list[str]) -> Iterator[tuple[str, random.Random]]:
    """Every file in turn, then any: each case is repeated by its number."""
    for number in range(CASES):
        chance = random.Random(number)
        yield (files[number] if number < len(files) else chance.choice(files)), chance


def outcome(release: Path) -> str:
    try:
        open_release(release)
    except XregError as error:
        return "refused" if str(release) in str(error) else f"refused without saying where: {error}"
    except Exception as error:
        return f"crashed: {error!r}"
    return "accepted"


def test_no_damage_of_any_file_is_accepted_or_leads_to_anything_but_an_error_of_ours(
    release: Path, tmp_path: Path
) -> None:
    files = files_of(release)
    assert {"manifest.json", "report.html", "stats.json", "calibration.json"} < set(files)
    assert any(name.endswith(".parquet") for name in files)
    assert len(files) < CASES
    for number, (name, chance) in enumerate(cases(files)):
        copy = tmp_path / release.name  # the name is part of what is verified
        link(release, copy)
        data = (copy / name).read_bytes()
        (copy / name).unlink()  # a link: the release itself must stay as it is
        (copy / name).write_bytes(damaged(data, chance))
        assert outcome(copy) == "refused", f"case {number}: damage of {name}"
        shutil.rmtree(copy)


def test_without_damage_the_linked_copy_is_served(release: Path, tmp_path: Path) -> None:
    link(release, tmp_path / release.name)
    assert open_release(tmp_path / release.name).name == release.name


def test_a_running_service_refuses_damaged_releases_and_goes_on_with_the_old_one(
    releases: Path, tmp_path: Path
) -> None:
    directory = tmp_path / "releases"
    names = copied(releases, directory)
    target, whole = directory / names[1], tmp_path / "whole"
    target.rename(whole)
    files, chance = files_of(whole), random.Random(0)
    with serving(directory, tmp_path / "log", watch_seconds="0") as running:
        point_to(directory, names[1])
        for name in ["manifest.json", "report.html", *chance.sample(files, 8)]:
            link(whole, target)
            data = (target / name).read_bytes()
            (target / name).unlink()
            (target / name).write_bytes(damaged(data, chance))
            answer = running.http.post("/admin/reload", headers=ADMIN)
            assert (answer.status_code, answer.json()["result"]) == (409, "refused"), name
            assert running.predict(query="a").json()["release"] == names[0]
            assert running.http.get("/health/ready").status_code == 200
            shutil.rmtree(target)
        link(whole, target)
        assert running.http.post("/admin/reload", headers=ADMIN).json()["release"] == names[1]
        assert running.predict(query="a").json()["release"] == names[1]
