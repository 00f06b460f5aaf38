"""Each method through the same steps, taken once for all tests."""

import shutil
import types

import pytest
from tiny_config import tiny_config
from tiny_step import (
  Steps,
  TinyCodecs,
  assert_ledger_matches,
  make_examples,
  make_task,
  make_tasks,
  pixels,
)

KEPT = 3
# New classes; only more images of a known one; both at once.
TASKS = make_tasks({0: 6, 1: 6}, {0: 4}, {1: 3, 2: 6}, held_out=1)
# Then class 0 is forgotten, and what was class 3 would be class 2.
LATER = make_task(4, {0: 2, 2: 5}, known=2)


@pytest.fixture(scope="session")
def codecs():
  return TinyCodecs()


@pytest.fixture(scope="session")
def make(codecs):
  def make_steps(name, folder, step=-1, memory=(), **section):
    config = tiny_config(name, KEPT)
    config.memory.quality = 60
    config.memory.update(dict(memory))
    config.gfr.generator_epochs = 3
    config.gfr.generator_batch_size = 8
    config.gfr.hidden = 8
    config.gfr.noise = 4
    config.gfr.views = 2
    config.mnemonics.pixel_rate = 1000.0
    config.podnet.tuning.epochs = 1
    config.ewc.images = 5
    for small in ("aqm", "dgr", "eec", "scalable_recollections"):
      config[small].widths = (4, 6)
      config[small].coder_epochs = 1
      config[small].coder_updates = 1
    config.aqm.entries = 16
    config.remind.dimensions = 2
    if section:
      config[name].update(section)
    return Steps(config, folder, codecs, step)

  return make_steps


@pytest.fixture(scope="session")
def taken(make, tmp_path_factory):
  """Gives a method after all tasks, by its name.

  It has `steps`; and for each task `histories` of training, `logits` of some
  images, `scores`, `ledgers`, and in `folder` copies of the state after it,
  `after-<step>`. `probe` are the images.
  """
  probe = make_examples({0: 4, 1: 4, 2: 4}, (99,))
  runs = {}

  def take(name):
    if name not in runs:
      folder = tmp_path_factory.mktemp(name)
      steps = make(name, folder / "w")
      run = types.SimpleNamespace(
        steps=steps, folder=folder, probe=probe, tasks=TASKS, later=LATER
      )
      run.histories, run.logits, run.scores, run.ledgers = [], [], [], []
      for task in TASKS:
        network = steps.learn(task)
        # Keras begins another history when it predicts.
        run.histories.append(network.classifier.history.history)
        run.logits.append(network.classifier(pixels(probe)).numpy())
        run.scores.append(steps.scores(probe))
        run.ledgers.append(assert_ledger_matches(steps))
        shutil.copytree(folder / "w", folder / f"after-{task.step}")
      runs[name] = run
    return runs[name]

  return take


@pytest.fixture
def reopen(make, taken, tmp_path):
  """The same method in a new process, after one of its tasks."""

  def reopen_run(name, step=0):
    run, folder = taken(name), tmp_path / f"{name}-{step}"
    shutil.copytree(run.folder / f"after-{step}", folder)
    steps = make(name, folder, step)
    steps.load_network(run.tasks[step])
    return steps

  return reopen_run
