"""What an ads team could serve without a model: the answers that xreg is compared with.

    popular   the ads with most training clicks, the same for every query
    bm25      BM25 of the query's words over title and text of the whole catalogue; needs no click
    memory    the query's own clicked ads by their training relevance, popular ads behind them

Each is (clicks, normalised queries, k) → the k best ads of every query with scores in 0 … 1, and knows of the clicks
only their training part. A query's answer does not depend on the queries asked beside it. Equal scores (as stored, in
32 bits) rank by lower ad. Scores of bm25 are no click rates: only their order means something.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from core.errors import UsageError
from core.jit import kernel
from core.sparse import Csr, Floats, Int32s, Int64s, best_of_rows, take_entries, take_rows, transpose
from core.text import ad_document, words
from training.clicks import Clicks

Doubles = npt.NDArray[np.float64]
Baseline = Callable[[Clicks, Sequence[str], int], Csr]
K1, B = 1.2, 0.75
_BLOCK = 4096  # queries answered at once: memory beside the answer stays small


def popular(clicks: Clicks, queries: Sequence[str], k: int) -> Csr:
    """Score: the ad's share of all training clicks. Ads without a click are never returned."""
    ads, shares = _most_clicked(clicks, k)
    order = np.argsort(ads)
    n = len(queries)
    indptr = np.arange(n + 1, dtype=np.int64) * len(ads)
    return Csr(indptr, np.tile(ads[order], n), np.tile(shares[order], n), clicks.ads.num_rows)


def bm25(clicks: Clicks, queries: Sequence[str], k: int) -> Csr:
    """Score: s / (s + h), where s = Σ over the query's words w of
    idf(w) · tf·(K1 + 1) / (tf + K1·(1 − B + B·length / mean length)), idf(w) = ln(1 + (N − df + ½) / (df + ½)),
    and h is the mean of all such summands in the catalogue: one average match scores ½. Ads that share no word with
    the query are not returned."""
    _check(k)
    ids: dict[str, int] = {}
    titles, texts = (clicks.ads.column(name).to_pylist() for name in ("title", "text"))
    documents = (ad_document(title or "", text or "") for title, text in zip(titles, texts, strict=True))
    postings = _weigh(_count_words(map(words, documents), ids, learn=True))
    half = float(postings.values.mean(dtype=np.float64)) if postings.nnz else 1.0

    def answer(block: Sequence[str]) -> Csr:
        asked = _count_words(map(words, block), ids, learn=False)
        n = asked.n_rows
        counts, ads, scores = np.zeros(n, np.int64), np.empty((n, k), np.int32), np.empty((n, k), np.float32)
        _best_matches(*asked[:3], *postings[:3], half, np.zeros(postings.n_cols, np.float64), counts, ads, scores)
        filled = np.arange(k) < counts[:, None]
        return Csr(np.append(0, np.cumsum(counts)), ads[filled], scores[filled], postings.n_cols)

    return _in_blocks(answer, queries, postings.n_cols)


def memory(clicks: Clicks, queries: Sequence[str], k: int) -> Csr:
    """Score: the training relevance of the query's own clicked ads; behind them the popular ads, whose shares are
    scaled down where that is needed to stay at or below half of the least own score."""
    _check(k)
    ads, shares = _most_clicked(clicks, k)
    own = _clicked(clicks, k)
    ids = {query: i for i, query in enumerate(clicks.queries[: clicks.known])}

    def answer(block: Sequence[str]) -> Csr:
        asked = np.array([ids.get(query, clicks.known) for query in block], np.int64)
        return _with_popular_behind(take_rows(own, asked), ads, shares, k)

    return _in_blocks(answer, queries, clicks.ads.num_rows)


BASELINES: dict[str, Baseline] = {"popular": popular, "bm25": bm25, "memory": memory}


def _check(k: int) -> None:
    if k < 1:
        raise UsageError(f"a baseline returns at least one ad per query; k is {k}")


def _in_blocks(answer: Callable[[Sequence[str]], Csr], queries: Sequence[str], n_ads: int) -> Csr:
    blocks = [answer(queries[at : at + _BLOCK]) for at in range(0, len(queries), _BLOCK)]
    lengths = [np.diff(block.indptr) for block in blocks]
    return Csr(
        np.concatenate([np.zeros(1, np.int64), *lengths]).cumsum(),
        np.concatenate([np.empty(0, np.int32), *(block.indices for block in blocks)]),
        np.concatenate([np.empty(0, np.float32), *(block.values for block in blocks)]),
        n_ads,
    )


# --- clicks -----------------------------------------------------------------------------------------------------------


def _most_clicked(clicks: Clicks, k: int) -> tuple[Int32s, Floats]:
    """At most k ads, best first, with their shares of all clicks."""
    _check(k)
    total = np.bincount(clicks.train.ad, clicks.train.clicks, minlength=clicks.ads.num_rows)
    shares = (total / max(float(total.sum()), 1e-30)).astype(np.float32)
    best = np.argsort(-shares, kind="stable")[:k]
    best = best[shares[best] > 0]
    return best.astype(np.int32), shares[best]


def _clicked(clicks: Clicks, k: int) -> Csr:
    """The k best clicked ads of every known query by relevance, and one row without any for all others."""
    train = clicks.train
    kept = (train.clicks > 0) & (train.relevance > 0) & (train.query < clicks.known)
    counts = np.bincount(train.query[kept], minlength=clicks.known + 1)
    rows = Csr(
        np.append(0, np.cumsum(counts)),
        np.asarray(train.ad[kept], np.int32),
        np.asarray(train.relevance[kept], np.float32),
        clicks.ads.num_rows,
    )
    return take_entries(rows, best_of_rows(rows, rows.values, k))


def _with_popular_behind(own: Csr, ads: Int32s, shares: Floats, k: int) -> Csr:
    """Rows filled up to k. An ad of both kinds counts as the query's own."""
    n, own_row = own.n_rows, np.repeat(np.arange(own.n_rows), np.diff(own.indptr))
    least = np.full(n, np.inf)
    np.minimum.at(least, own_row, own.values)
    scale = np.minimum(1.0, least / 2 / max(float(shares[0]), 1e-30)) if len(shares) else least
    row, ad = np.repeat(np.arange(n), len(ads)), np.tile(ads, n)
    new = ~np.isin(row * own.n_cols + ad, own_row * own.n_cols + own.indices, assume_unique=True)
    row, ad = np.append(own_row, row[new]), np.append(own.indices, ad[new])
    value = np.append(own.values, np.outer(scale, shares).astype(np.float32).ravel()[new])
    order = np.lexsort((ad, row))
    indptr = np.append(0, np.cumsum(np.bincount(row, minlength=n)))
    rows = Csr(indptr, ad[order], value[order], own.n_cols)
    return take_entries(rows, best_of_rows(rows, rows.values, k))


# --- words ------------------------------------------------------------------------------------------------------------


def _count_words(texts: Iterable[Iterable[str]], ids: dict[str, int], learn: bool) -> Csr:
    """How often each word occurs in each text; new words get the next id, or are left out."""

    def known(text: Iterable[str]) -> Iterator[int]:
        for word in text:
            at = ids.setdefault(word, len(ids)) if learn else ids.get(word, -1)
            if at >= 0:
                yield at

    indptr, indices, counts = [0], [], []
    for text in texts:
        found = sorted(Counter(known(text)).items())
        indices += [word for word, _ in found]
        counts += [count for _, count in found]
        indptr.append(len(indices))
    return Csr(np.array(indptr, np.int64), np.array(indices, np.int32), np.array(counts, np.float32), len(ids))


def _weigh(ads: Csr) -> Csr:
    """Word counts of the ads → for every word the ads that have it, with its BM25 summand."""
    row = np.repeat(np.arange(ads.n_rows), np.diff(ads.indptr))
    length = np.bincount(row, ads.values, minlength=ads.n_rows)
    frequency = np.bincount(ads.indices, minlength=ads.n_cols)
    idf = np.log1p((ads.n_rows - frequency + 0.5) / (frequency + 0.5))
    norm = K1 * (1 - B + B * length / max(float(length.mean()) if len(length) else 0.0, 1e-30))
    weight = idf[ads.indices] * ads.values * (K1 + 1) / (ads.values + norm[row])
    return transpose(ads._replace(values=weight.astype(np.float32)))


@kernel()
def _best_matches(
    ptr: Int64s,
    ids: Int32s,
    counts: Floats,
    word_ptr: Int64s,
    word_ads: Int32s,
    word_weights: Floats,
    half: float,
    sums: Doubles,
    found: Int64s,
    ads: Int32s,
    scores: Floats,
) -> None:
    """For each query the found[i] ≤ k best ads, ascending, into ads [n, k] and scores [n, k] = s / (s + half).

    sums [ads] is zero before and after. Ranked by the 32-bit score, ties by lower ad.
    """
    k = ads.shape[1]
    touched = np.empty(sums.size, np.int32)
    score = np.empty(sums.size, np.float32)
    for i in range(ptr.size - 1):
        n = 0
        for j in range(ptr[i], ptr[i + 1]):
            for p in range(word_ptr[ids[j]], word_ptr[ids[j] + 1]):
                ad = word_ads[p]
                if sums[ad] == 0.0:
                    touched[n] = ad
                    n += 1
                sums[ad] += counts[j] * np.float64(word_weights[p])
        for t in range(n):
            s = sums[touched[t]]
            score[t] = np.float32(s / (s + half))
        found[i] = min(n, k)
        _keep_best(touched[:n], score[:n], ads[i, : found[i]])
        for m in range(found[i]):
            s = sums[ads[i, m]]
            scores[i, m] = np.float32(s / (s + half))
        for t in range(n):
            sums[touched[t]] = 0.0


@kernel()
def _keep_best(ads: Int32s, scores: Floats, best: Int32s) -> None:
    """The best.size ads of highest score, ascending; of those that tie for the last places the lower ones."""
    if best.size == ads.size:
        best[:] = np.sort(ads)
        return
    least = np.partition(scores, scores.size - best.size)[scores.size - best.size]
    n = 0
    for t in range(ads.size):
        if scores[t] > least:
            best[n] = ads[t]
            n += 1
    ties = ads[scores == least]
    best[n:] = np.partition(ties, best.size - n - 1)[: best.size - n]
    best.sort()
