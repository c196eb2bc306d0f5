"""A directory of releases: whatever dies whenever, the old one or the new one is served, never a mixture."""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from core import releases as module
from core.errors import ModelError, ReleaseError, UsageError
from core.releases import current, link, listing, publish, read_release, retain, roll_back

WHEN = datetime(2026, 11, 16, 2, tzinfo=UTC)


def contents(text: str) -> Callable[[Path], None]:
    def fill(aside: Path) -> None:
        (aside / "online").mkdir()
        (aside / "online" / "weights.npy").write_text(text)
        (aside / "stats.json").write_text("{}")

    return fill


def make(releases: Path, text: str, when: datetime = WHEN) -> str:
    return publish(releases, when, {"kind": "test"}, contents(text), lambda aside: None)


def test_publishing_serves_the_new_release_and_the_same_again_is_the_same(tmp_path: Path) -> None:
    name = make(tmp_path, "a")
    assert current(tmp_path) == name
    assert name.startswith("2026-11-16T02-00-00Z-")
    assert read_release(tmp_path / name)["kind"] == "test"
    assert make(tmp_path, "a") == name
    assert listing(tmp_path) == [name]


CALLS = ("fsync", "rename", "replace", "link", "mkdir")


def die_at(step: int, releases: Path) -> bool:
    """Publish in a child process that is killed at its n-th call to the file system; False when it got through."""
    child = os.fork()
    if child == 0:
        left = step

        def counted(call: Any) -> Any:
            def run(*args: Any, **kwargs: Any) -> Any:
                nonlocal left
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return call(*args, **kwargs)

            return run

        for call in CALLS:
            setattr(os, call, counted(getattr(os, call)))
        try:
            make(releases, "new", WHEN + timedelta(days=1))
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0


def test_a_publisher_killed_at_every_step_leaves_the_old_or_the_new_release(tmp_path: Path) -> None:
    seen: list[str] = []
    killed = True
    while killed:
        releases = tmp_path / str(len(seen))
        releases.mkdir()
        old = make(releases, "old")
        killed = die_at(len(seen), releases)
        name = current(releases)
        assert name is not None
        text = (releases / name / "online" / "weights.npy").read_text()
        assert text == ("old" if name == old else "new")
        for other in listing(releases):
            read_release(releases / other)  # whatever has a name is whole
        seen.append(text)
        assert make(releases, "new", WHEN + timedelta(days=1)) == current(releases)  # started again, it gets through
        assert not [path for path in releases.iterdir() if path.name.endswith(".writing")]
    assert len(seen) > 10
    assert seen == sorted(seen, reverse=True)  # old until CURRENT is replaced, new from then on
    assert set(seen) == {"old", "new"}


def test_a_release_that_fails_its_check_is_not_served_and_leaves_nothing(tmp_path: Path) -> None:
    old = make(tmp_path, "old")

    def refuse(aside: Path) -> None:
        raise ModelError("no")

    with pytest.raises(ModelError, match="no"):
        publish(tmp_path, WHEN + timedelta(1), {}, contents("bad"), refuse)
    assert current(tmp_path) == old
    assert listing(tmp_path) == [old]
    assert not list(tmp_path.glob(".*.writing"))


@pytest.mark.parametrize("file", ["manifest.json", "stats.json", "online/weights.npy"])
def test_a_changed_missing_additional_or_linked_file_is_refused(tmp_path: Path, file: str) -> None:
    path = tmp_path / make(tmp_path, "abc") / file
    data = path.read_bytes()
    for at in range(len(data)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(ModelError):
            read_release(tmp_path / listing(tmp_path)[0])
    path.write_bytes(data[:-1])
    with pytest.raises(ModelError):
        read_release(tmp_path / listing(tmp_path)[0], verify=False)
    path.write_bytes(data)
    read_release(tmp_path / listing(tmp_path)[0])
    extra = path.parent / "extra"
    extra.write_text("")
    with pytest.raises(ModelError, match="not in the manifest"):
        read_release(tmp_path / listing(tmp_path)[0])
    extra.unlink()
    extra.symlink_to(path)
    with pytest.raises(ModelError, match="a link"):
        read_release(tmp_path / listing(tmp_path)[0])


def test_rolling_back_goes_one_back_or_where_it_is_told(tmp_path: Path) -> None:
    names = [make(tmp_path, str(i), WHEN + timedelta(days=i)) for i in range(3)]
    assert roll_back(tmp_path) == (names[2], names[1])
    assert roll_back(tmp_path) == (names[1], names[0])
    with pytest.raises(ReleaseError, match="no release before"):
        roll_back(tmp_path)
    assert roll_back(tmp_path, names[2]) == (names[0], names[2])
    with pytest.raises(UsageError, match="is no release in"):
        roll_back(tmp_path, "../elsewhere")
    (tmp_path / "CURRENT").write_text("nonsense")
    with pytest.raises(ReleaseError, match="which is no release here"):
        current(tmp_path)
    assert roll_back(tmp_path) == (None, names[2])


def test_what_was_served_before_is_what_the_release_names_as_its_parent(tmp_path: Path) -> None:
    first, second = (make(tmp_path, str(i), WHEN + timedelta(days=i)) for i in range(2))
    assert roll_back(tmp_path) == (second, first)
    third = publish(tmp_path, WHEN + timedelta(days=2), {"parent": first}, contents("3"), lambda aside: None)
    assert retain(tmp_path, 1, None, WHEN) == [second]
    assert roll_back(tmp_path) == (third, first)


def test_what_a_dead_publisher_left_is_swept_away(tmp_path: Path) -> None:
    make(tmp_path, "a")
    (tmp_path / ".2020-01-01T00-00-00Z.writing" / "online").mkdir(parents=True)
    retain(tmp_path, 5, None, WHEN)
    assert not list(tmp_path.glob(".*.writing"))


def test_a_damaged_release_is_not_rolled_back_to(tmp_path: Path) -> None:
    names = [make(tmp_path, str(i), WHEN + timedelta(days=i)) for i in range(2)]
    (tmp_path / names[0] / "stats.json").write_text("[]")
    with pytest.raises(ModelError):
        roll_back(tmp_path)
    assert current(tmp_path) == names[1]


def test_retention_by_count_and_age_spares_the_served_release_and_the_one_before(tmp_path: Path) -> None:
    names = [make(tmp_path, str(i), WHEN + timedelta(days=i)) for i in range(6)]
    assert retain(tmp_path, 4, None, WHEN) == names[:2]
    roll_back(tmp_path, names[3])
    assert retain(tmp_path, 1, None, WHEN) == [names[4]]  # 2 is before the served 3, 5 is the newest
    assert listing(tmp_path) == [names[2], names[3], names[5]]
    assert retain(tmp_path, 9, 1.5, WHEN + timedelta(days=7)) == [names[5]]
    assert listing(tmp_path) == [names[2], names[3]]


def test_two_publishers_at_once_are_refused(tmp_path: Path) -> None:
    make(tmp_path, "a")
    with (tmp_path / module._LOCK).open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(ReleaseError, match="another process is publishing"):
            make(tmp_path, "b")


def test_links_share_bytes(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c").write_text("x")
    link(tmp_path / "a", tmp_path / "z")
    assert (tmp_path / "z" / "b" / "c").stat().st_ino == (tmp_path / "a" / "b" / "c").stat().st_ino
