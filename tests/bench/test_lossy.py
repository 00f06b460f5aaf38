import json
import pathlib

import numpy as np

from ibdrr_tf.bench import lossy
from ibdrr_tf.codec import pretrained
from ibdrr_tf.data.examples import in_memory
from ibdrr_tf.data.load import fingerprint
from ibdrr_tf.data.source import Source


def test_how_many_classes_a_codec_has_seen(tmp_path):
  pixels = np.zeros((6, 8, 8, 3), np.uint8)
  split = in_memory(pixels, np.arange(6))
  source = Source("mine", tuple("abcdef"), split, split)
  claim = {
    "data": {"class_order": "natural", "classes": 4},
    "scenario": {"base_classes": 0},  # Half of the four: 0 and 1.
    "data_fingerprint": fingerprint(source),
  }

  def trained_on(**changes):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(claim | changes))
    return lossy._trained_on(str(tmp_path), source, {1, 2, 3})

  assert trained_on() == 1
  assert trained_on(data_fingerprint="0" * 16) is None
  (tmp_path / "config.json").unlink()
  # That of a run, which names its data elsewhere.
  assert lossy._trained_on(str(tmp_path), source, {1}) is None


def test_the_codecs_of_the_package_say_what_they_were_trained_on():
  for name in pretrained.names():
    path = pathlib.Path(pretrained.folder_of(name)) / "config.json"
    claim = json.loads(path.read_text())
    # That of Tiny-ImageNet was read from a folder.
    assert claim["dataset"] in (name.split("_depth")[0], "folder")
    assert len(claim["data_fingerprint"]) == 16
