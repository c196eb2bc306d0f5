"""Every form of data set is read alike; bad data get an error naming file, line and cause."""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from core.errors import DataError
from core.sparse import to_scipy
from training.dataset import Dataset, hold_out, read_dataset

SINGLE = "3 5 4\n1,3 4:0.5 0:1 4:0.25\n 2:1.5\n0 1:2\n"
X = "3 5\n4:0.5 0:1 4:0.25\n2:1.5\n1:2\n"
Y = "3 4\n1:1 3:1\n\n0:1\n"


def write(path: Path, text: str) -> Path:
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def dense(data: Dataset) -> tuple[list[list[float]], list[list[float]]]:
    return to_scipy(data.features).toarray().tolist(), to_scipy(data.relevance).toarray().tolist()


EXPECTED = (
    [[1, 0, 0, 0, 0.75], [0, 0, 1.5, 0, 0], [0, 2, 0, 0, 0]],
    [[0, 1, 0, 1], [0, 0, 0, 0], [1, 0, 0, 0]],
)


@pytest.mark.parametrize("ending", [".txt", ".txt.gz"])
def test_single_file(tmp_path: Path, ending: str) -> None:
    assert dense(read_dataset(write(tmp_path / f"any{ending}", SINGLE), "train")) == EXPECTED


@pytest.mark.parametrize(("first", "second"), [("", ""), (".gz", ".gz"), ("", ".gz")])
def test_pairs(tmp_path: Path, first: str, second: str) -> None:
    write(tmp_path / f"trn_X_Y.txt{second}", Y)
    path = write(tmp_path / f"trn_X_Xf.txt{first}", X)
    assert dense(read_dataset(path, "train")) == EXPECTED
    assert dense(read_dataset(tmp_path, "train")) == EXPECTED


def test_npz(tmp_path: Path) -> None:
    for name, rows in zip("XY", EXPECTED, strict=True):
        sparse.save_npz(tmp_path / f"tst_{name}.npz", sparse.csr_matrix(np.array(rows)))
    assert dense(read_dataset(tmp_path, "test")) == EXPECTED
    assert dense(read_dataset(tmp_path / "tst_X.npz", "train")) == EXPECTED


@pytest.mark.parametrize("size", [1, 7, 20])
def test_text_is_read_in_blocks_of_any_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr("training.dataset._BLOCK", size)
    for ending in (".txt", ".txt.gz"):
        for text in (SINGLE, SINGLE.removesuffix("\n")):
            assert dense(read_dataset(write(tmp_path / f"any{ending}", text), "train")) == EXPECTED
        for line, message in (("0 1:x\n", "line 5: feature 1: 'x'"), ("0 1:3e38 1:3e38\n", "row 3: the values of a")):
            with pytest.raises(DataError, match=message):
                read_dataset(write(tmp_path / f"bad{ending}", SINGLE.replace("3 5 4", "4 5 4") + line), "train")
        with pytest.raises(DataError, match="promises 3 rows, the file has 6"):
            read_dataset(write(tmp_path / f"more{ending}", SINGLE + "\n0 9:bad\n\n"), "train")


def test_graded_values_and_duplicate_labels(tmp_path: Path) -> None:
    write(tmp_path / "trn_X_Xf.txt", "2 2\n0:1\n1:1\n")
    write(tmp_path / "trn_X_Y.txt", "2 3\n2:0.25 0:1 2:0.5\n1:0\n")
    data = read_dataset(tmp_path, "train")
    assert to_scipy(data.relevance).toarray().tolist() == [[1, 0, 0.5], [0, 0, 0]]
    assert data.relevance.nnz == 2  # a relevance of 0 says nothing


def test_a_directory_means_its_part(tmp_path: Path) -> None:
    write(tmp_path / "train.txt", SINGLE)
    write(tmp_path / "test.txt.gz", "1 5 4\n0 0:1\n")
    assert read_dataset(tmp_path, "train").n_points == 3
    assert read_dataset(tmp_path, "test").n_points == 1
    with pytest.raises(DataError, match=r"no train part; looked for trn_X_Xf.txt"):
        read_dataset(tmp_path.parent, "train")
    write(tmp_path / "trn_X_Xf.txt", X)
    with pytest.raises(DataError, match="more than one train part"):
        read_dataset(tmp_path, "train")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "bad.txt: the file is empty"),
        ("1 5\n0:1\n", "…_Xf.txt"),
        ("x y z\n", "line 1: the header must be counts"),
        ("1 2 3 4\n", "line 1: the header must be counts"),
        ("99999999 5 4\n0 0:1\n", "the header promises 99999999 rows, the file has 1"),
        ("3 5 4\n0 0:1\n", "the header promises 3 rows, the file has 1"),
        ("1 5 4\n0 0:1\n0 0:1\n", "the header promises 1 rows, the file has 2"),
        ("2 5 4\n0 0:1\n0 5:1\n", "line 3: feature id 5 is out of range; the header says 5 (0 … 4)"),
        ("2 5 4\n4 0:1\n0 5:1\n", "line 2: label id 4 is out of range"),
        ("1 5 4\n0 0:nan\n", "line 2: feature 0: the value is not a number (NaN)"),
        ("1 5 4\n0 0:-1\n", "line 2: feature 0: the value -1 is negative"),
        ("1 5 4\n0 0:3e38 0:3e38\n", "row 0: the values of a duplicate id add up to more"),
        ("1 5 4\n" + "9" * 5000 + " 0:1\n", "line 2: label id 99999999999999999999 is out of range"),
        ("1 5 4\n0 0:1 3", "line 2: feature 3 has no value: truncated?"),
    ],
)
def test_bad_text_says_file_line_and_cause(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError) as error:
        read_dataset(write(tmp_path / "bad.txt", text), "train")
    assert str(tmp_path / "bad.txt") in str(error.value)
    assert message in str(error.value)


def test_bad_gzip(tmp_path: Path) -> None:
    whole = gzip.compress(SINGLE.encode() * 50)
    for name, data in (("cut.txt.gz", whole[:-20]), ("no.txt.gz", b"plain text")):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(DataError, match=f"{name}: not a complete gzip file"):
            read_dataset(tmp_path / name, "train")
    (tmp_path / "un.txt").write_bytes(whole)
    with pytest.raises(DataError, match=r"this is a gzip file; name it un.txt.gz"):
        read_dataset(tmp_path / "un.txt", "train")


def test_bad_npz(tmp_path: Path) -> None:
    (tmp_path / "trn_X.npz").write_bytes(b"not a zip")
    sparse.save_npz(tmp_path / "trn_Y.npz", sparse.csr_matrix((2, 3)))
    with pytest.raises(DataError, match="not a scipy sparse matrix"):
        read_dataset(tmp_path, "train")
    for value, cause in ((np.nan, "NaN"), (np.inf, "infinite"), (-1.0, "negative")):
        sparse.save_npz(tmp_path / "trn_X.npz", sparse.csr_matrix(np.array([[0, 1.0], [value, 2]])))
        with pytest.raises(DataError, match=f"row 1: a value is {cause}"):
            read_dataset(tmp_path, "train")
    sparse.save_npz(tmp_path / "trn_X.npz", sparse.csr_matrix(np.array([[0, 1.0], [1e300, 2]])))
    with pytest.raises(DataError, match="row 1: a value is infinite"):
        read_dataset(tmp_path, "train")
    lying = sparse.csc_matrix(np.array([[0, 1.0], [1, 2]]))
    lying.indices[0] = 10**6
    sparse.save_npz(tmp_path / "trn_X.npz", lying)
    with pytest.raises(DataError, match="not a scipy sparse matrix"):
        read_dataset(tmp_path, "train")
    sparse.save_npz(tmp_path / "trn_X.npz", sparse.csr_matrix((5, 3)))
    with pytest.raises(DataError, match="5 points with features, 2 with relevances"):
        read_dataset(tmp_path, "train")
    (tmp_path / "trn_Y.npz").unlink()
    with pytest.raises(DataError, match=r"trn_Y.npz: missing"):
        read_dataset(tmp_path, "train")


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file or directory"):
        read_dataset(tmp_path / "nothing.txt", "train")


def test_hold_out_splits_every_point_once(shop: tuple[Dataset, Dataset]) -> None:
    kept, held = hold_out(shop[0], 0.2, seed=3)
    assert kept.n_points + held.n_points == shop[0].n_points
    assert 0.1 < held.n_points / shop[0].n_points < 0.3
    assert kept.fingerprint() == hold_out(shop[0], 0.2, seed=3)[0].fingerprint()
    assert kept.fingerprint() != hold_out(shop[0], 0.2, seed=4)[0].fingerprint()


def test_eurlex_is_read_whole_and_fast(real_data: Callable[[str], Path], tmp_path: Path) -> None:
    source = real_data("eurlex4k") / "train.txt.gz"
    plain = tmp_path / "train.txt"
    plain.write_bytes(gzip.decompress(source.read_bytes()))
    data = read_dataset(plain, "train")
    assert (data.n_points, data.n_features, data.n_labels) == (15539, 5000, 3993)
    assert data.features.nnz == 3_684_773
    assert (np.diff(data.relevance.indptr) == 0).sum() == 28
    start = time.process_time()
    read_dataset(plain, "train")
    assert time.process_time() - start < 2.0  # CPU, not wall time: measured at 0.25
