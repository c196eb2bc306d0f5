"""Made-up data whose shape is that of the real thing, from hundreds to millions of labels.

Words are Zipfian. Labels belong to topics, have power-law popularity and a few words of their own; a point is about one
to several labels of one topic, and its words come from those labels, from the topic and from the language. Relevance is
graded: high for the label a point is about, lower for the others. All draws come from one seed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse

from core.errors import UsageError
from core.sparse import Csr, from_scipy
from training.dataset import Dataset

_LABELS_PER_TOPIC = 40
_WORDS_PER_LABEL = 12
_WORDS_PER_TOPIC = 40
_BLOCK = 100_000


class World(NamedTuple):
    """The fixed part: which words labels and topics use, and how popular they are."""

    n_features: int
    popularity: npt.NDArray[np.float64]  # cumulative, over labels
    label_words: npt.NDArray[np.int32]  # [labels, _WORDS_PER_LABEL]
    topic_words: npt.NDArray[np.int32]  # [topics, _WORDS_PER_TOPIC]


def make_world(n_labels: int, n_features: int, seed: int) -> World:
    if n_labels < 1 or n_features < 100:
        raise UsageError(f"made-up data needs at least 1 label and 100 features, got {n_labels} and {n_features}")
    random = np.random.default_rng([seed, 0])
    weight = (np.arange(n_labels) + 10.0) ** -0.8
    random.shuffle(weight)
    n_topics = -(-n_labels // _LABELS_PER_TOPIC)
    return World(
        n_features,
        np.cumsum(weight) / weight.sum(),
        _zipf(random, n_features, (n_labels, _WORDS_PER_LABEL), 0.6),
        _zipf(random, n_features, (n_topics, _WORDS_PER_TOPIC), 0.6),
    )


def make_points(world: World, n_points: int, words: int, seed: int) -> Dataset:
    """Draw points with `words` words on average; the same seed gives the same points."""
    blocks = [
        _block(world, min(_BLOCK, n_points - start), words, np.random.default_rng([seed, 1, start]))
        for start in range(0, n_points, _BLOCK)
    ]
    features = sparse.vstack([x for x, _ in blocks], format="csr")
    relevance = sparse.vstack([y for _, y in blocks], format="csr")
    return Dataset(from_scipy(features), _capped(from_scipy(relevance)))


def _block(
    world: World, n: int, words: int, random: np.random.Generator
) -> tuple[sparse.csr_matrix, sparse.csr_matrix]:
    n_labels = len(world.popularity)
    about = np.searchsorted(world.popularity, random.random(n)).astype(np.int64)
    point, label, relevance = _labels_of(random, about, n_labels)
    lengths = np.maximum(random.poisson(words, n), 1)
    row = np.repeat(np.arange(n), lengths)
    # A word speaks for one of the point's labels, for its topic, or for nothing.
    starts = np.searchsorted(point, np.arange(n + 1))
    of_row = starts[row] + (random.random(len(row)) ** 1.5 * np.diff(starts)[row]).astype(np.int64)
    own = world.label_words[label[of_row], random.integers(0, _WORDS_PER_LABEL, len(row))]
    topic = world.topic_words[about[row] // _LABELS_PER_TOPIC, random.integers(0, _WORDS_PER_TOPIC, len(row))]
    common = _zipf(random, world.n_features, (len(row),), 1.0)
    kind = random.random(len(row))
    word = np.where(kind < 0.45, own, np.where(kind < 0.65, topic, common))
    counts = sparse.csr_matrix((np.ones(len(row), np.float32), (row, word)), shape=(n, world.n_features))
    return counts, sparse.csr_matrix((relevance, (point, label)), shape=(n, n_labels))


def _labels_of(
    random: np.random.Generator, about: npt.NDArray[np.int64], n_labels: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """(point, label, relevance) by point: the label it is about first, then neighbours in its topic."""
    n = len(about)
    extra = np.minimum(random.geometric(0.3, n) - 1, 12)
    point = np.repeat(np.arange(n), extra + 1)
    main = np.zeros(len(point), bool)
    main[np.cumsum(extra + 1) - extra - 1] = True
    topic = about[point] // _LABELS_PER_TOPIC * _LABELS_PER_TOPIC
    near = np.minimum(topic + (random.random(len(point)) ** 2 * _LABELS_PER_TOPIC).astype(np.int64), n_labels - 1)
    relevance = np.where(main, random.beta(8, 2, len(point)), random.beta(2, 4, len(point)))
    return point, np.where(main, about[point], near), np.maximum(relevance, 0.01).astype(np.float32)


def _capped(relevance: Csr) -> Csr:
    """A label drawn twice for a point would count twice: its relevance stays at most 1."""
    return relevance._replace(values=np.minimum(relevance.values, np.float32(1.0)))


def _zipf(random: np.random.Generator, n_words: int, shape: tuple[int, ...], exponent: float) -> npt.NDArray[np.int32]:
    """Ranks with P(r) ~ r^-exponent, by inverting the continuous distribution."""
    u = random.random(shape)
    if exponent == 1.0:
        rank = np.exp(u * np.log(n_words + 1.0)) - 1.0
    else:
        power = 1.0 - exponent
        rank = (u * ((n_words + 1.0) ** power - 1.0) + 1.0) ** (1.0 / power) - 1.0
    return np.asarray(np.minimum(rank, n_words - 1), np.int32)
