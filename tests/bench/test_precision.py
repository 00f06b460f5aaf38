from ibdrr_tf.bench import precision


def test_speeds_are_those_of_the_clock(monkeypatch):
  """Each timed training of two steps seems to take four seconds."""
  clock = iter(range(0, 1000, 4))
  monkeypatch.setattr(precision.time, "perf_counter", lambda: next(clock))
  measured = precision.measure((2,), ("float32", "bfloat16"), steps=2)
  assert measured == {"width 2": {"float32": 64.0, "bfloat16": 64.0}}
