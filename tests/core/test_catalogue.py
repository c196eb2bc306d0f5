"""The ads of a release: what is written is read again, damage is refused, and a renewed catalogue keeps its numbers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.catalogue import TEXTS, Catalogue, joined, open_catalogue, renewed, write_catalogue
from core.errors import ModelError
from core.format import checksum


def ads(names: list[str], bid: float = 1.0, **more: list[str]) -> pa.Table:
    texts = {name: [f"{name} of {ad}" for ad in names] for name in ("title", "text", "url")}
    return pa.table({"ad_id": names, **texts, "bid": [bid] * len(names), "quality": [0.5] * len(names), **more})


def written(directory: Path, table: pa.Table, live: Any = None) -> Catalogue:
    directory.mkdir()
    write_catalogue(directory, table, live)
    return open_catalogue(directory)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    table = ads(["b", "a", "ü"], 2.5, brand=["x", "y", "z"])
    catalogue = written(tmp_path / "c", table, np.array([True, False, True]))
    assert list(catalogue.ids.all()) == ["b", "a", "ü"]
    assert [catalogue.ids.find(ad) for ad in ("b", "a", "ü", "c")] == [0, 1, 2, -1]
    assert catalogue.bid.tolist() == [2.5] * 3
    assert catalogue.quality.tolist() == [0.5] * 3
    assert catalogue.gone.tolist() == [1]
    assert catalogue.texts() == table
    assert catalogue.texts(["brand"])["brand"].to_pylist() == ["x", "y", "z"]


names = st.lists(st.sampled_from("abcdefghij"), unique=True, min_size=1, max_size=8)


@settings(max_examples=30)
@given(names, names, st.sets(st.sampled_from("abcdefghij")))
def test_added_ads_leave_all_live_ones_and_bring_no_removed_one_back(
    tmp_path_factory: pytest.TempPathFactory, first: list[str], more: list[str], gone: set[str]
) -> None:
    live = np.array([ad not in gone for ad in first])
    catalogue = written(tmp_path_factory.mktemp("joined") / "c", ads(first), live)
    table = joined(catalogue, ads(more, bid=2.0))
    stay = [ad for ad in first if ad not in gone and ad not in more]
    assert table["ad_id"].to_pylist() == more + stay
    assert table["bid"].to_pylist() == [2.0] * len(more) + [1.0] * len(stay)


@settings(max_examples=30)
@given(names, names, names)
def test_renewed_catalogues_keep_every_number(
    tmp_path_factory: pytest.TempPathFactory, first: list[str], second: list[str], third: list[str]
) -> None:
    base = tmp_path_factory.mktemp("renewed")
    catalogue, everybody = written(base / "0", ads(first)), list(first)
    for step, now in enumerate((second, third), 1):
        table, live = renewed(catalogue, ads(now, bid=step + 1.0))
        everybody += [ad for ad in now if ad not in everybody]
        assert table["ad_id"].to_pylist() == everybody  # the old places, then the new ads in their order
        assert live.tolist() == [ad in now for ad in everybody]
        catalogue = written(base / str(step), table, live)
        bids = dict(zip(everybody, catalogue.bid.tolist(), strict=True))
        assert all(bids[ad] == step + 1.0 for ad in now)


def test_columns_may_come_and_go(tmp_path: Path) -> None:
    old = written(tmp_path / "c", ads(["a", "b"], brand=["x", "y"]))
    table, live = renewed(old, ads(["b", "c"], colour=["red", "blue"]))
    assert live.tolist() == [False, True, True]
    assert table["brand"].to_pylist() == ["x", None, None]
    assert table["colour"].to_pylist() == [None, "red", "blue"]


def change_array(name: str, value: float) -> Callable[[Path], None]:
    """Change an array and make the manifest agree, as a faulty writer would."""

    def change(directory: Path) -> None:
        path = directory / f"{name}.npy"
        array = np.load(path)
        array[0] = value
        np.save(path, array)
        manifest = json.loads((directory / "manifest.json").read_text())
        manifest["arrays"][name] |= {"bytes": path.stat().st_size, "sha256": checksum(path)}
        (directory / "manifest.json").write_text(json.dumps(manifest))

    return change


def drop_live(directory: Path) -> None:
    manifest = json.loads((directory / "manifest.json").read_text())
    del manifest["arrays"]["live"]
    (directory / "live.npy").unlink()
    (directory / "manifest.json").write_text(json.dumps(manifest))


def damage(directory: Path) -> None:
    data = bytearray((directory / "bid.npy").read_bytes())
    data[-1] ^= 1
    (directory / "bid.npy").write_bytes(data)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (damage, "SHA-256 differs"),
        (drop_live, "live must be"),
        (change_array("bid", float("nan")), "bid must be finite"),
        (change_array("quality", -1.0), "quality must be finite and not negative"),
        (lambda path: pq.write_table(ads(["a", "z"]), path / TEXTS), "does not list the same ads"),
        (lambda path: (path / TEXTS).write_bytes(b"PAR1"), "ads.parquet"),
        (lambda path: (path / TEXTS).unlink(), "ads.parquet"),
        (lambda path: (path / "manifest.json").unlink(), "no manifest.json"),
        (lambda path: (path / "ad_text.npy").unlink(), "missing"),
    ],
)
def test_a_damaged_catalogue_is_refused(tmp_path: Path, change: Callable[[Path], None], message: str) -> None:
    written(tmp_path / "c", ads(["a", "b"]))
    change(tmp_path / "c")
    with pytest.raises(ModelError, match=message):
        open_catalogue(tmp_path / "c")
