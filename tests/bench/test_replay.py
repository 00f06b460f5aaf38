import itertools

import numpy as np
import pytest

from ibdrr_tf.bench import replay
from ibdrr_tf.choices import CACHES
from ibdrr_tf.replay.code_store import CodeStore


def test_every_way_to_feed_a_step_is_timed(codec_folder, monkeypatch):
  """Feeds from bit-strings read the disk anew in every epoch."""
  reads, caches = [], []
  read, feed = CodeStore.read, replay.CodeFeed

  class Watched(feed):
    def __init__(self, *arguments, cache, **options):
      caches.append(cache)
      super().__init__(*arguments, cache=cache, **options)

  monkeypatch.setattr(replay, "CodeFeed", Watched)
  monkeypatch.setattr(
    CodeStore, "read", lambda store: reads.append(1) or read(store)
  )
  rows = replay.measure(codec_folder, steps=1, width=1)
  assert list(rows) == [
    "raw images",
    *(f"bit-strings, {cache} cached" for cache in CACHES),
  ]
  # Once to build the classifier, and in each of four epochs.
  assert {cache: caches.count(cache) for cache in CACHES} == dict.fromkeys(
    CACHES, 5
  )
  assert len(reads) == len(caches)
  raw = rows["raw images"]["seconds"]
  assert raw > 0 and rows["raw images"]["ratio"] == 1.0
  for row in rows.values():
    np.testing.assert_allclose(row["ratio"] * raw, row["seconds"])


def test_a_step_costs_its_share_of_a_median_epoch(monkeypatch):
  """A clock that only feeds move: the first epoch does not count."""
  now = itertools.count()  # Any two looks at the clock differ by one.
  epochs = {"slow": iter([0, 900, 30, 10, 50]), "fast": iter([0, 9, 6, 5, 7])}
  turns = []

  def make(name):
    for _ in range(next(epochs[name])):
      next(now)
    turns.append(name)
    return replay._noise(2 * replay._BATCH)

  monkeypatch.setattr(replay.time, "perf_counter", lambda: next(now))
  kinds = {name: lambda name=name: make(name) for name in epochs}
  seconds = replay._take_turns(kinds, width=1, steps=2)
  # The clock itself takes one tick.
  assert seconds == pytest.approx({"slow": 31 / 2, "fast": 7 / 2})
  assert turns == ["slow", "fast"] * 5
