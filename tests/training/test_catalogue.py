"""The catalogue of ads: what is kept, what is filled in, what is refused."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from core.errors import DataError
from training.catalogue import documents, read_catalogue

HEAD = "ad_id,title,text,url"


def written(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "ads.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_ads_are_sorted_by_id_and_further_columns_kept(tmp_path: Path) -> None:
    text = f'{HEAD},brand,bid\nb,"Red, shoe","two\nlines",u,y,2.5\n007,T,,,x,\n'
    ads = read_catalogue(written(tmp_path, text))
    assert ads.column_names == ["ad_id", "title", "text", "url", "bid", "quality", "brand"]
    assert ads.to_pylist() == [
        {"ad_id": "007", "title": "T", "text": "", "url": "", "bid": 1.0, "quality": 1.0, "brand": "x"},
        {
            "ad_id": "b",
            "title": "Red, shoe",
            "text": "two\nlines",
            "url": "u",
            "bid": 2.5,
            "quality": 1.0,
            "brand": "y",
        },
    ]
    assert documents(ads) == ["t", "red shoe two lines"]


def test_parquet_gives_the_same_catalogue(tmp_path: Path) -> None:
    text = f"{HEAD},quality\n2,a,b,c,0.5\n1,é,,d,1\n"
    plain = read_catalogue(written(tmp_path, text))
    pq.write_table(
        pa.table(
            {
                "ad_id": pa.array([2, 1]),
                "title": pa.array(["a", "é"], pa.large_string()),
                "text": pa.array(["b", None]).dictionary_encode(),
                "url": ["c", "d"],
                "quality": pa.array([0.5, None], pa.float32()),
            }
        ),
        tmp_path / "ads.parquet",
    )
    assert read_catalogue(tmp_path / "ads.parquet").equals(plain)


def test_broken_letters_of_a_text_are_replaced(tmp_path: Path) -> None:
    ads = read_catalogue(written(tmp_path, HEAD.encode() + b"\na,caf\xe9,x,u\n"))
    assert ads.column("title").to_pylist() == ["caf\N{REPLACEMENT CHARACTER}"]


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", "the file is empty"),
        (f"{HEAD}\n", "the catalogue holds no ads"),
        ("ad_id,title,url\na,b,c\n", "columns ad_id, title, url; needed are ad_id, title, text, url"),
        (f"{HEAD},title\na,b,c,d,e\n", "each once"),
        (f"{HEAD}\na,b,c,d\nb,,,\na,b,c,d\n", "ad_id 'a' occurs 2 times; ids must be unique"),
        (f"{HEAD}\na,b,c,d\n,b,c,d\n", "the ad_id is empty"),
        (f"{HEAD}\na,b,c\n", "cannot be read"),
        (f"{HEAD},bid\na,b,c,d,-1\n", "bid must be a number, 0 or more and at most 3.4e38; got b'-1'"),
        (f"{HEAD},quality\na,b,c,d,nan\n", "quality must be a number"),
        (f"{HEAD},bid\na,b,c,d,much\n", "bid must be a number"),
        (HEAD.encode() + b"\n\xff,b,c,d\n", "ad_id must be UTF-8"),
    ],
)
def test_a_catalogue_that_cannot_be_used_is_refused(tmp_path: Path, text: str | bytes, cause: str) -> None:
    with pytest.raises(DataError, match=cause):
        read_catalogue(written(tmp_path, text))


def test_a_missing_or_misnamed_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        read_catalogue(tmp_path / "none.csv")
    (tmp_path / "ads.txt").touch()
    with pytest.raises(DataError, match=r"named \.csv"):
        read_catalogue(tmp_path / "ads.txt")
