"""Learning over time: one step at a time, old data gone, nothing lost."""

import dataclasses
import functools
import gc
import json
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework.func_graph import FuncGraph
from tiny_codec import write_codec
from tiny_config import tiny_learner_config as tiny_config

from ibdrr_tf import experiment
from ibdrr_tf import state as states
from ibdrr_tf.data.examples import select
from ibdrr_tf.data.load import load_data
from ibdrr_tf.distribution import Team
from ibdrr_tf.errors import UserError
from ibdrr_tf.learner import Learner
from ibdrr_tf.lock import Lock
from ibdrr_tf.open_state import OpenState
from ibdrr_tf.replay.code_store import CodeStore

SIZE = 16


@pytest.fixture(scope="module")
def codec(tmp_path_factory):
  return write_codec(tmp_path_factory.mktemp("codec") / "c", 0)


def pictures(names, per_class, seed=0):
  """Images, and the class name of each: (uint8 [n, 16, 16, 3], names)."""
  generator = np.random.default_rng(seed)
  labels = [name for name in names for _ in range(per_class)]
  images = generator.integers(0, 256, (len(labels), SIZE, SIZE, 3))
  return images.astype(np.uint8), labels


def contents(folder):
  """Every committed file of a state, by name, apart from logs and the lock."""
  return {
    str(path.relative_to(folder)): path.read_bytes()
    for path in sorted(pathlib.Path(folder).rglob("*"))
    if path.is_file()
    and path.name != ".lock"
    and path.parts[len(pathlib.Path(folder).parts)] != "tensorboard"
    and path.suffix != ".keras"  # A zip file, which holds the time.
  }


def without_times(state):
  """A state without how long its steps took."""
  steps = [{**step, "seconds": 0} for step in state.steps]
  return dataclasses.replace(state, steps=tuple(steps))


@pytest.fixture(scope="module")
def week(codec, tmp_path_factory):
  """A learner after three steps, and its state after each of them."""
  folder = tmp_path_factory.mktemp("week")
  learner = Learner(folder / "S", config=tiny_config(codec))
  for number, data in enumerate(DAYS):
    learner.learn(data)
    shutil.copytree(folder / "S", folder / f"after-{number}")
  return learner, folder


DAYS = (
  pictures(["cat", "dog"], 10),  # New classes;
  pictures(["cat"], 6, 1),  # more of a known one;
  pictures(["ant", "dog"], 5, 2),  # and both at once.
)


def test_classes_only_grow_and_all_images_are_remembered(week):
  learner, _ = week
  assert learner.classes == ("cat", "dog", "ant")
  assert [step["new_classes"] for step in learner.history] == [
    ["cat", "dog"],
    [],
    ["ant"],
  ]
  codes = learner.memory.read()
  assert np.bincount(codes.labels).tolist() == [16, 15, 5]
  # A tenth of each class was set aside, at least one.
  held = codes.labels[codes.held_out]
  assert np.bincount(held).tolist() == [2, 2, 1]
  assert learner.ledger().images == 36


def test_a_new_process_knows_the_same(week):
  learner, folder = week
  images, _ = pictures(["x"], 5, 7)
  again = Learner(folder / "S")
  one, other = learner.predict(images), again.predict(images)
  assert one.names == other.names and set(one.names) <= set(learner.classes)
  np.testing.assert_array_equal(one.probabilities, other.probabilities)
  np.testing.assert_allclose(one.probabilities.sum(axis=1), 1, rtol=1e-5)
  # The Keras file says so too, without this package.
  keras = tf.keras.models.load_model(folder / "S/classifier/classifier.keras")
  names = json.loads((folder / "S/classifier/class_names.json").read_text())
  got = keras.predict(images, verbose=0).argmax(axis=1)
  assert [names[k] for k in got] == one.names


def test_a_moved_and_copied_state_goes_on(week, tmp_path):
  _, folder = week
  shutil.copytree(folder / "after-1", tmp_path / "moved")
  moved = Learner(tmp_path / "moved")
  moved.learn(DAYS[2])
  want, got = contents(folder / "S"), contents(tmp_path / "moved")
  assert set(want) == set(got)
  for name in want:
    if name != "state.json":
      assert want[name] == got[name], name
  assert without_times(states.read_state(tmp_path / "moved")) == without_times(
    states.read_state(folder / "S")
  )


def test_the_same_data_is_not_learned_twice(week):
  _, folder = week
  before = contents(folder / "S")
  record = Learner(folder / "S").learn(DAYS[2])
  assert record["step"] == 2 and contents(folder / "S") == before


def test_appending_rewrites_nothing(week):
  _, folder = week
  files_ = [set((folder / f"after-{n}/memory").iterdir()) for n in range(3)]
  names = [{path.name for path in part} for part in files_]
  assert names[2] == {
    "codes-000.tfrecord",
    "codes-001.tfrecord",
    "codes-002.tfrecord",
    "manifest-002.json",
  }
  for number in (0, 1):
    for name in names[number] - {f"manifest-{number:03d}.json"}:
      old, new = (folder / f"after-{n}/memory/{name}" for n in (number, 2))
      assert old.read_bytes() == new.read_bytes()


def test_bits_a_code_are_those_of_the_new_images(week):
  learner, folder = week
  for number, record in enumerate(learner.history):
    path = folder / f"S/memory/codes-{number:03d}.tfrecord"
    payload = sum(
      len(
        tf.train.Example.FromString(r)
        .features.feature["chain"]
        .bytes_list.value[0]
      )
      for r in tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
    )
    codes = (record["images"] + record["held_out"]) * (2 * 2 + 4 * 4)
    assert record["bits_per_code"] == round(8 * payload / codes, 3)


def test_a_step_decodes_old_bit_strings_once(week, tmp_path, monkeypatch):
  _, folder = week
  shutil.copytree(folder / "after-1", tmp_path / "S")
  read, calls = CodeStore.read, []
  monkeypatch.setattr(
    CodeStore, "read", lambda store: calls.append(1) or read(store)
  )
  learner = Learner(tmp_path / "S")
  learner.learn(DAYS[2])
  assert len(calls) == 1
  kept, stored = learner.memory.read(), Learner(tmp_path / "S").memory.read()
  for name in ("top", "bottom", "labels", "held_out"):
    np.testing.assert_array_equal(getattr(kept, name), getattr(stored, name))


def test_workers_notice_a_change_when_the_chief_does(week, monkeypatch):
  """Each has timed the last step itself, so their states are not equal."""
  learner, folder = week
  learner = Learner(folder / "after-2")
  memory = learner.memory
  *others, last = learner._open.state.steps
  own = dataclasses.replace(
    learner._open.state, steps=(*others, {**last, "seconds": -1.0})
  )
  for answer in ("", "changed"):
    monkeypatch.setattr(Team, "ask_chief", lambda *_, said=answer: said)
    learner._open.state = own
    with learner._open.changing():
      assert (learner._open._memory is memory) == (answer == "")
      assert (learner._open.state == own) == (answer == "")


def test_accuracy_on_old_classes_is_told_by_what_memory_gives_back(week):
  learner, _ = week
  last = learner.history[-1]["accuracy"]
  held = learner.memory.held_out()
  right = learner.scores(held).argmax(axis=1) == held.labels
  # Only cats are old in the last step; raw images test ants and dogs.
  cats = right[held.labels == 0]
  assert last["old"] == pytest.approx(100 * cats.mean())
  assert last["new"] is not None


class Killed(BaseException):
  """Stands for the end of the process: nothing may catch it."""


RENAMES = ("replace", "fsync")


def dies_after(monkeypatch, count, names=RENAMES):
  """Lets so many renames and flushes pass, then ends the process."""
  left = [count]
  for name in names:
    real = getattr(os, name)

    def wrapped(*args, real=real, **options):
      if not left[0]:
        raise Killed
      left[0] -= 1
      return real(*args, **options)

    monkeypatch.setattr(os, name, wrapped)


# What may be killed: the same call again ends as if it had not been.
CALLS = {
  "learn": lambda learner: learner.learn(DAYS[2]),
  "forget": lambda learner: learner.forget("dog"),
  "retrain": lambda learner: learner.retrain(),
}


def kill_and_repeat(folder, monkeypatch, call, kills, names=RENAMES):
  """Kills a call at some instants, repeats it, and compares what is there.

  Returns:
    For each instant, whether the step had been committed.
  """
  if not (folder / f"after-{call}").exists():
    shutil.copytree(folder / "before", folder / f"after-{call}")
    CALLS[call](Learner(folder / f"after-{call}"))
  before, after = (
    without_times(states.read_state(folder / name))
    for name in ("before", f"after-{call}")
  )
  want, seen = contents(folder / f"after-{call}"), []
  for kill in kills:
    path = folder / "killed"
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(folder / "before", path)
    with monkeypatch.context() as patch:
      dies_after(patch, kill, names)
      with pytest.raises(Killed):
        CALLS[call](Learner(path))
    state = without_times(states.read_state(path))
    assert state in (before, after)
    seen.append(state == after)
    # What was killed can be opened as it is; the call brings it to its end.
    assert Learner(path).memory.step == state.step
    CALLS[call](Learner(path))
    got = contents(path)
    assert set(got) == set(want)
    for name in want:
      if name != "state.json":
        assert got[name] == want[name], (kill, name)
    assert without_times(states.read_state(path)) == after
  assert seen == sorted(seen)
  return seen


@pytest.mark.parametrize(
  ("method", "kills"), [("raw_replay", range(12)), ("drr", (3, 5, 7))]
)
def test_killed_at_any_instant_the_state_is_before_or_after(
  codec, tmp_path, monkeypatch, method, kills
):
  """Killed at instants all over a step; the same call ends as if not."""
  for data in DAYS[:2]:
    Learner(tmp_path / "before", config=tiny_config(codec, method)).learn(data)
  seen = kill_and_repeat(tmp_path, monkeypatch, "learn", kills)
  if method == "raw_replay":
    assert True in seen and False in seen


def test_forgetting_and_retraining_may_be_killed_too(
  codec, tmp_path, monkeypatch
):
  config = tiny_config(codec, "raw_replay")
  Learner(tmp_path / "before", config=config).learn(DAYS[0])
  kill = functools.partial(kill_and_repeat, tmp_path, monkeypatch)
  assert kill("forget", (3, 8)) == [False, True]
  assert kill("retrain", (8,)) == [True]
  # Files go after the commit; the claim of the step is the last of them.
  assert all(kill("forget", (8, 14), ("unlink",)))
  assert kill("retrain", (17,), ("unlink",)) == [True]


def test_a_clock_that_was_set_back_does_not_matter(codec, tmp_path):
  config = tiny_config(codec, "finetune")
  learner = Learner(tmp_path / "S", config=config)
  learner.learn(DAYS[0])
  for path in (tmp_path / "S").rglob("*"):
    os.utime(path, (4e9, 4e9))
  learner.learn(pictures(["cow"], 6, 5))
  names = json.loads((tmp_path / "S/classifier/class_names.json").read_text())
  assert names == ["cat", "dog", "cow"]
  model = tmp_path / "S/classifier/classifier.keras"
  assert tf.keras.models.load_model(model).output_shape == (None, 3)


def test_a_retraining_that_has_ended_may_be_asked_for_again(codec, tmp_path):
  config = tiny_config(codec, "raw_replay")
  Learner(tmp_path / "S", config=config).learn(DAYS[0])
  for step in (1, 2):
    assert Learner(tmp_path / "S").retrain()["step"] == step


def test_other_data_after_a_kill_is_a_step_of_its_own(
  week, tmp_path, monkeypatch
):
  _, folder = week
  other = pictures(["cow"], 6, 5)
  for path in ("killed", "plain"):
    shutil.copytree(folder / "after-1", tmp_path / path)
  with monkeypatch.context() as patch:
    dies_after(patch, 8)
    with pytest.raises(Killed):
      Learner(tmp_path / "killed").learn(DAYS[2])
  for path in ("killed", "plain"):
    Learner(tmp_path / path).learn(other)
  one, two = (
    without_times(states.read_state(tmp_path / path))
    for path in ("killed", "plain")
  )
  assert one == two
  for name in ("classifier/network-002.npz", "memory/codes-002.tfrecord"):
    got, want = (tmp_path / p / name for p in ("killed", "plain"))
    assert got.read_bytes() == want.read_bytes()


def test_forget_takes_a_class_out_of_memory_and_head(week, tmp_path):
  learner, folder = week
  images = DAYS[0][0]
  shutil.copytree(folder / "S", tmp_path / "S")
  smaller = Learner(tmp_path / "S")
  smaller.forget("dog")
  assert smaller.classes == ("cat", "ant")
  codes = smaller.memory.read()
  assert np.bincount(codes.labels).tolist() == [16, 5]
  logits = learner.network.classifier(images).numpy()
  got = smaller.network.classifier(images).numpy()
  np.testing.assert_allclose(got, logits[:, [0, 2]], atol=1e-5)
  again = Learner(tmp_path / "S")
  assert again.predict(images).names == smaller.predict(images).names
  again.forget("dog")  # Once more changes nothing.
  assert again.step == 3
  with pytest.raises(UserError, match=r"'cow'.*cat, ant"):
    again.forget("cow")
  again.retrain()
  assert again.step == 4 and again.classes == ("cat", "ant")
  again.learn(pictures(["dog"], 5, 9))
  assert again.classes == ("cat", "ant", "dog")


def test_a_state_of_one_class_can_lose_it(codec, tmp_path):
  learner = Learner(tmp_path / "S", config=tiny_config(codec, "raw_replay"))
  learner.learn(pictures(["cat"], 6))
  learner.forget("cat")
  with pytest.raises(UserError, match="knows no class"):
    Learner(tmp_path / "S").predict(DAYS[0][0][:1])
  Learner(tmp_path / "S").learn(pictures(["dog"], 6))
  assert Learner(tmp_path / "S").classes == ("dog",)


def test_nothing_of_a_forgotten_class_stays(codec, tmp_path):
  learner = Learner(tmp_path / "S", config=tiny_config(codec, "raw_replay"))
  learner.learn(pictures(["cat"], 6))
  pictured = (
    tmp_path / "S/reconstructions.png",
    tmp_path / "S/report.html",
    tmp_path / "S/tensorboard/vqvae/pictures/events",
  )
  for path in pictured:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("a picture")
  learner.forget("cat")
  for path in pictured:
    assert not path.exists()
  assert list((tmp_path / "S/classifier").iterdir()) == []
  with pytest.raises(UserError, match="knows no class"):
    learner.retrain()


def test_a_forgetting_that_was_killed_after_its_commit_is_finished(
  week, tmp_path, monkeypatch
):
  _, folder = week
  shutil.copytree(folder / "S", tmp_path / "S")
  with monkeypatch.context() as patch:
    patch.setattr(OpenState, "settle", lambda self: None)
    Learner(tmp_path / "S").forget("dog")
  left = contents(tmp_path / "S")
  assert "classifier/network-002.npz" in left
  Learner(tmp_path / "S").forget("dog")
  left = contents(tmp_path / "S")
  assert "classifier/network-002.npz" not in left
  assert json.loads(left["classifier/class_names.json"]) == ["cat", "ant"]
  assert Learner(tmp_path / "S").step == 3


def test_gfr_learns_again_after_all_is_forgotten(codec, tmp_path):
  learner = Learner(tmp_path / "S", config=tiny_config(codec, "gfr"))
  learner.learn(pictures(["cat"], 6))
  learner.forget("cat")
  learner.learn(pictures(["dog"], 6))
  assert learner.classes == ("dog",)


@pytest.mark.parametrize("method", ["sheet_replay", "webp_replay", "drr"])
def test_a_smaller_budget_holds_without_new_images(codec, tmp_path, method):
  config = tiny_config(codec, method)
  config.memory.sheet = "webp"
  data = pictures(["cat", "dog"], 60)
  Learner(tmp_path / "S", config=config).learn(data)
  ledger = Learner(tmp_path / "S").ledger()
  # Beside the images there is room for a larger manifest.
  least = ledger.total - ledger.payload // 2 + 700
  shutil.copytree(tmp_path / "S", tmp_path / "again")
  retrained = Learner(tmp_path / "S", memory_bytes=least)
  retrained.retrain()
  again = Learner(tmp_path / "again", memory_bytes=least)
  again.learn(data)
  for learner in (retrained, again):
    assert learner.step == 1 and learner.ledger().total <= least
    assert learner.history[-1]["images"] == 0
    assert learner.history[-1]["accuracy"]["old"] is not None
  assert retrained.ledger() == again.ledger()


def test_a_network_in_eight_bits_counts_and_comes_back(codec, tmp_path):
  config = tiny_config(codec, "wa")
  config.classifier.stored = "int8"
  learner = Learner(tmp_path / "S", config=config)
  learner.learn(pictures(["cat", "dog"], 6))
  size = (tmp_path / "S/classifier/network-000.npz").stat().st_size
  ledger = learner.ledger()
  assert ledger.old_network == ledger.old_network_8bit == size
  assert ledger.next_phase == ledger.total > ledger.images_and_decoders
  # What is evaluated here is what the next process finds.
  images, _ = pictures(["x"], 5, 7)
  again = Learner(tmp_path / "S")
  assert again.ledger() == ledger
  np.testing.assert_array_equal(
    again.predict(images).probabilities, learner.predict(images).probabilities
  )


def test_a_coarser_quality_may_be_asked_for_later(codec, tmp_path):
  config = tiny_config(codec, "webp_replay")
  Learner(tmp_path / "S", config=config).learn(DAYS[0])
  config.memory.quality = 5
  learner = Learner(tmp_path / "S", config=config)
  learner.learn(DAYS[1])
  assert learner.memory.quality == 5


def test_one_changed_image_is_other_data(codec, tmp_path):
  images, names = pictures(["cat", "dog"], 300)
  config = tiny_config(codec, "finetune")
  Learner(tmp_path / "S", config=config).learn((images, names))
  images[301] = 0
  record = Learner(tmp_path / "S").learn((images, names))
  assert record["step"] == 1


def test_images_of_several_sizes_are_classified(week):
  learner, _ = week
  small, large = np.zeros([2, 8, 8, 3], np.uint8), np.zeros([9, 30, 3])
  predictions = learner.predict([*small, large.astype(np.uint8)])
  assert len(predictions.names) == 3
  assert learner.predict(small[0]).names == predictions.names[:1]
  with pytest.raises(UserError, match="NoneType"):
    learner.predict(None)


def test_another_image_size_is_refused(week):
  with pytest.raises(UserError, match="16 pixels a side, not of 32"):
    Learner(week[1] / "S", image_size=32)


def test_a_method_without_images_cannot_retrain(codec, tmp_path):
  learner = Learner(tmp_path / "S", config=tiny_config(codec, "finetune"))
  learner.learn(DAYS[0])
  with pytest.raises(UserError, match="finetune keeps no images"):
    learner.retrain()


def test_another_process_is_named(week):
  _, folder = week
  holder = subprocess.Popen(
    [
      sys.executable,
      "-c",
      "import sys, pathlib\n"
      "from ibdrr_tf.lock import Lock\n"
      "with Lock(pathlib.Path(sys.argv[1])):\n"
      "  print('held', flush=True); sys.stdin.read()",
      str(folder / "S"),
    ],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
  )
  assert holder.stdout.readline() == b"held\n"
  with pytest.raises(UserError, match=f"in use by process {holder.pid} on "):
    Learner(folder / "S").learn(pictures(["cow"], 5))
  holder.kill()
  holder.wait()
  with Lock(folder / "S"):
    pass  # The lock of a dead process is none.


@pytest.mark.parametrize(
  ("data", "part"),
  [
    ((np.zeros((2, 8, 8, 3), np.float32), ["a", "b"]), "float32"),
    ((np.zeros((2, 8, 8), np.uint8), ["a", "b"]), "uint8"),
    ((np.zeros((2, 8, 8, 3), np.uint8), ["a"]), "2 images and 1"),
    (7, "int"),
  ],
)
def test_what_cannot_be_learned_gets_a_sentence(codec, tmp_path, data, part):
  learner = Learner(tmp_path / "S", config=tiny_config(codec))
  with pytest.raises(UserError, match=part):
    learner.learn(data)
  assert not (tmp_path / "S/state.json").exists()


def test_arrays_folders_and_data_sets_serve_alike(codec, tmp_path):
  from PIL import Image

  images, names = pictures(["cat", "dog"], 4)
  for number, (image, name) in enumerate(zip(images, names, strict=True)):
    path = tmp_path / "data" / name / f"{number:02d}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(image).save(path)
  pairs = tf.data.Dataset.from_tensor_slices((images, names))
  forms = {
    "arrays": (images, names),
    "folder": tmp_path / "data",
    "pairs": pairs,
    "batches": pairs.batch(3),
  }
  networks = []
  for form, data in forms.items():
    learner = Learner(tmp_path / form, config=tiny_config(codec, "finetune"))
    learner.learn(data)
    networks.append(
      (tmp_path / form / "classifier/network-000.npz").read_bytes()
    )
  assert len(set(networks)) == 1


def test_fixed_fields_stay_and_others_may_change(week, tmp_path):
  _, folder = week
  shutil.copytree(folder / "after-0", tmp_path / "S")
  with pytest.raises(UserError, match=r"config\.method is 'drr'"):
    Learner(tmp_path / "S", method="finetune")
  learner = Learner(tmp_path / "S", memory_bytes=10**9)
  learner.learn(DAYS[1])
  assert Learner(tmp_path / "S").config.memory.total_bytes == 10**9


def test_a_damaged_state_is_named_and_nothing_is_deleted(week, tmp_path):
  _, folder = week
  shutil.copytree(folder / "S", tmp_path / "S")
  path = tmp_path / "S/state.json"
  text = path.read_text()
  for broken in (text.replace('"step": 2', '"step": 1'), "{}", "nonsense"):
    path.write_text(broken)
    before = contents(tmp_path / "S")
    with pytest.raises(UserError, match=r"state\.json is damaged"):
      Learner(tmp_path / "S").learn(pictures(["cow"], 5))
    assert contents(tmp_path / "S") == before


def test_a_folder_of_other_files_is_refused_and_left_alone(codec, tmp_path):
  precious = tmp_path / "S/memory/thesis.txt"
  precious.parent.mkdir(parents=True)
  precious.write_text("precious")
  learner = Learner(tmp_path / "S", config=tiny_config(codec, "finetune"))
  with pytest.raises(UserError, match="holds no state but other files"):
    learner.learn(DAYS[0])
  assert precious.read_text() == "precious"
  assert not (tmp_path / "S/.lock").exists()


def test_a_memory_whose_state_is_lost_is_left_alone(
  week, tmp_path, monkeypatch
):
  """The traces of a later step do not make the folder that of a first one."""
  _, folder = week
  shutil.copytree(folder / "after-1", tmp_path / "S")
  with monkeypatch.context() as patch:
    dies_after(patch, 3)
    with pytest.raises(Killed):
      Learner(tmp_path / "S").learn(DAYS[2])
  (tmp_path / "S/state.json").unlink()
  before = contents(tmp_path / "S")
  config = tiny_config(folder / "S/codec")
  with pytest.raises(UserError, match="holds no state but other files"):
    Learner(tmp_path / "S", config=config).learn(DAYS[0])
  assert contents(tmp_path / "S") == before


def test_a_process_killed_at_its_very_start_leaves_a_usable_folder(
  codec, tmp_path
):
  (tmp_path / "S/checkpoints").mkdir(parents=True)
  (tmp_path / "S/checkpoints/.claim.txt.part").touch()
  learner = Learner(tmp_path / "S", config=tiny_config(codec, "finetune"))
  assert learner.learn(DAYS[0])["step"] == 0


def test_a_first_step_that_was_killed_gives_way_to_other_data(
  codec, tmp_path, monkeypatch
):
  config = tiny_config(codec, "raw_replay")
  with monkeypatch.context() as patch:
    dies_after(patch, 6)
    with pytest.raises(Killed):
      Learner(tmp_path / "S", config=config).learn(DAYS[0])
  assert states.read_state(tmp_path / "S") is None
  for name in ("S", "plain"):
    Learner(tmp_path / name, config=config).learn(DAYS[2])
  one, two = (contents(tmp_path / name) for name in ("S", "plain"))
  del one["state.json"], two["state.json"]
  assert one == two


def test_a_lost_codec_is_named_and_not_replaced(week, tmp_path):
  _, folder = week
  shutil.copytree(folder / "S", tmp_path / "S")
  (tmp_path / "S/codec/vqvae.ibvq").unlink()
  before = contents(tmp_path / "S")
  with pytest.raises(UserError, match=r"vqvae\.ibvq is missing"):
    Learner(tmp_path / "S").learn(pictures(["cow"], 5))
  after = contents(tmp_path / "S")
  del after["checkpoints/claim.txt"]
  assert after == before


# Two groups: the second is left out of each run of the tests.
METHODS = ("drr", "ib_drr", "webp_replay", "icarl", "lucir", "gfr")
MORE_METHODS = ("sheet_replay", "der", "ewc", "aqm")

# One phase of every method, in a process that has seen nothing else.
_PHASE = """
import json, sys
import numpy as np
from ibdrr_tf import config as defaults
from ibdrr_tf.data.examples import in_memory
from ibdrr_tf.learner import Learner

arrays = np.load(sys.argv[1])
answers = {}
for method in sys.argv[2:]:
  config = defaults.get_config()
  defaults.update_known(config, json.loads(str(arrays["config"])))
  learner = Learner("S-" + method, config=config, method=method)
  learner.learn_examples(
    [str(name) for name in arrays["names"]],
    in_memory(arrays["images"], arrays["labels"]),
  )
  test = in_memory(arrays["test"], arrays["test_labels"])
  right = learner.scores(test).argmax(axis=1) == arrays["test_labels"]
  answers[method] = {
    "accuracy": 100.0 * float(np.mean(right)),
    "memory": learner.ledger().to_json(),
  }
print(json.dumps(answers))
"""


@pytest.mark.parametrize(
  "methods",
  [METHODS, pytest.param(MORE_METHODS, marks=pytest.mark.slow)],
  ids=["methods", "more"],
)
def test_a_benchmark_is_a_learner_that_is_given_phases(
  codec, tmp_path, methods
):
  """Each phase in a process of its own ends as the benchmark does.

  It shows that a step sees nothing but state, new images and seed.
  """
  config = tiny_config(codec)
  config.dataset = "shapes"
  config.data.classes = 4
  config.data.shapes_train, config.data.shapes_test = 10, 5
  config.scenario.base_classes, config.scenario.phases = 2, 2
  config.bitswap.refit = "always"
  source, scenario = load_data(config)
  got = []
  for phase in scenario.phases:
    labels, seen = scenario.new_labels(phase), scenario.seen_labels(phase)
    new = select(source.train, scenario, labels)
    test = select(source.test, scenario, seen)
    order = scenario.order[labels.start : labels.stop]
    np.savez(
      tmp_path / "phase.npz",
      config=config.to_json(),
      names=[source.class_names[k] for k in order],
      images=new.read(tf.range(len(new), dtype=tf.int64)),
      labels=new.labels - labels.start,
      test=test.read(tf.range(len(test), dtype=tf.int64)),
      test_labels=test.labels,
    )
    done = subprocess.run(
      [sys.executable, "-c", _PHASE, "phase.npz", *methods],
      cwd=tmp_path,
      capture_output=True,
      text=True,
      check=False,
    )
    assert not done.returncode, done.stderr
    got.append(json.loads(done.stdout.splitlines()[-1]))
  for method in methods:
    planned = config.copy_and_resolve_references()
    planned.method = method
    results = experiment.run_experiment(
      planned, str(tmp_path / method), strategy=tf.distribute.get_strategy()
    )
    for phase, record in enumerate(results["phases"]):
      theirs = got[phase][method]
      assert theirs["memory"] == record["memory"], (method, phase)
      # The same count of right answers, divided in another order.
      assert theirs["accuracy"] == pytest.approx(record["accuracy"], 1e-9)
    whole, parts = (contents(tmp_path / p) for p in (method, f"S-{method}"))
    for name in parts:
      if name.startswith(("memory", "classifier/network")):
        assert parts[name] == whole[name], (method, name)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["drr", "sheet_replay", "gfr"])
def test_ten_steps_leave_no_graphs_behind(codec, tmp_path, method):
  """What is alive after a step does not grow with the number of steps."""
  learner = Learner(tmp_path / "S", config=tiny_config(codec, method))
  graphs, sizes = [], []
  for step in range(10):
    learner.learn(pictures([f"a{step}", f"b{step}"], 6, step))
    gc.collect()
    graphs.append(sum(isinstance(o, FuncGraph) for o in gc.get_objects()))
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    sizes.append(pages * os.sysconf("SC_PAGE_SIZE") / 1e6)
  assert max(graphs[2:]) <= graphs[1] + 1
  assert sizes[-1] - sizes[2] < 7 * 8
