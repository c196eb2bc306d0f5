"""The ads of a release: their ids, bids and qualities as mapped arrays, everything else about them as Parquet beside.

An ad's number is its place here: the label of the online model, the point of the labelwise one, the entry of a table's
row. A catalogue that is renewed without retraining keeps the numbers: ads that are gone stay with `live` 0 and are
never answered, new ads come behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from core.errors import ModelError
from core.format import create_array, map_arrays, read_manifest, write_manifest
from core.names import Names, check_names, names_arrays, names_of
from core.sparse import Floats, Int32s

FORMAT, VERSION = "xreg-catalogue", 1
TEXTS = "ads.parquet"
_NUMBERS = {"bid": "<f4", "quality": "<f4", "live": "|u1"}


class Catalogue(NamedTuple):
    """Ads by number."""

    path: Path
    ids: Names
    bid: Floats
    quality: Floats
    live: npt.NDArray[np.uint8]

    @property
    def gone(self) -> Int32s:
        """Ads that must not be answered."""
        return np.flatnonzero(self.live == 0).astype(np.int32)

    def texts(self, columns: Sequence[str] | None = None) -> pa.Table:
        """What pages and exports show: a row per ad, by number."""
        try:
            return pq.read_table(self.path / TEXTS, columns=columns)
        except (pa.ArrowException, OSError) as error:
            raise ModelError(f"{self.path / TEXTS}: cannot be read ({error})") from error


def write_catalogue(directory: Path, ads: pa.Table, live: npt.NDArray[np.bool_] | None = None) -> None:
    """Write ads (ad_id, title, text, url, bid, quality and more) into an existing directory."""
    arrays = dict(names_arrays(ads["ad_id"].to_pylist(), "ad_"))
    arrays["bid"], arrays["quality"] = (ads[name].to_numpy().astype(np.float32) for name in ("bid", "quality"))
    arrays["live"] = np.ones(ads.num_rows, np.uint8) if live is None else live.astype(np.uint8)
    for name, array in arrays.items():
        create_array(directory, name, array.dtype, len(array))[:] = array
    pq.write_table(ads, directory / TEXTS)
    write_manifest(directory, {"format": FORMAT, "version": VERSION, "ads": ads.num_rows})


def open_catalogue(directory: Path, verify: bool = True) -> Catalogue:
    manifest = read_manifest(directory, FORMAT, VERSION)
    arrays = map_arrays(directory, manifest, verify)
    ids = names_of(directory, arrays, "ad_")
    for name, dtype in _NUMBERS.items():
        array = arrays.get(name)
        if array is None or array.dtype.str != dtype or array.shape != (ids.count,):
            raise ModelError(f"{directory}: {name} must be {dtype} with one entry for each of {ids.count} ads")
    catalogue = Catalogue(directory, ids, arrays["bid"], arrays["quality"], arrays["live"])
    if verify:
        check_names(directory, ids, "ad_")
        for name in ("bid", "quality"):
            if not (np.isfinite(arrays[name]).all() and (arrays[name] >= 0).all()):
                raise ModelError(f"{directory}: {name} must be finite and not negative")
        if catalogue.texts(["ad_id"])["ad_id"].to_pylist() != list(ids.all()):
            raise ModelError(f"{directory / TEXTS}: does not list the same ads as the arrays beside it")
    return catalogue


def renewed(old: Catalogue, ads: pa.Table) -> tuple[pa.Table, npt.NDArray[np.bool_]]:
    """A new catalogue in the numbers of an old one: (ads, which of them are live)."""
    place = {ad: row for row, ad in enumerate(ads["ad_id"].to_pylist())}
    known = list(old.ids.all())
    new = [row for ad, row in place.items() if old.ids.find(ad) < 0]
    kept = [place.get(ad) for ad in known]
    gone = old.texts().filter(pa.array([row is None for row in kept]))
    both = pa.concat_tables([ads, _in_types_of(ads, gone)], promote_options="permissive")
    behind = iter(range(ads.num_rows, both.num_rows))
    order = [next(behind) if row is None else row for row in kept] + new
    live = np.array([row is not None for row in kept] + [True] * len(new), bool)
    return both.take(pa.array(order, pa.int64())), live


def joined(old: Catalogue, ads: pa.Table) -> pa.Table:
    """Ads that are new or changed, and behind them all others that are live."""
    given = set(ads["ad_id"].to_pylist())
    stays = [bool(live) and ad not in given for ad, live in zip(old.ids.all(), old.live.tolist(), strict=True)]
    rest = _in_types_of(ads, old.texts().filter(pa.array(stays)))
    return pa.concat_tables([ads, rest], promote_options="permissive")


def _in_types_of(ads: pa.Table, gone: pa.Table) -> pa.Table:
    """Columns that have changed their type are left out of what is gone: nobody is shown it."""
    clash = [name for name in gone.column_names if name in ads.column_names and ads[name].type != gone[name].type]
    return gone.drop_columns(clash)
