"""A week of data, day by day; each day's images are deleted in the evening.

    python examples/week.py

Monday brings two classes, Wednesday a third one, Friday more images of the
first. Takes about a minute on two CPU cores.
"""

import pathlib
import shutil
import tempfile

import numpy as np
from PIL import Image

import ibdrr_tf
from ibdrr_tf import config as defaults

COLOURS = {"apple": (200, 40, 40), "leaf": (40, 160, 60), "sky": (70, 120, 220)}


def photograph(folder: pathlib.Path, name: str, count: int, seed: int) -> None:
  """Writes image files of a class: its colour, in light and shade."""
  generator = np.random.default_rng(seed)
  (folder / name).mkdir(parents=True)
  for number in range(count):
    light = generator.uniform(0.5, 1.2, (4, 4, 1))
    light = np.kron(light, np.ones((8, 8, 1)))
    image = np.clip(light * COLOURS[name], 0, 255).astype(np.uint8)
    Image.fromarray(image).save(folder / name / f"{number:03d}.png")


with tempfile.TemporaryDirectory() as root:
  root = pathlib.Path(root)
  config = defaults.learner_config()
  config.classifier.width, config.classifier.updates = 8, 100
  learner = ibdrr_tf.Learner(root / "state", config=config)
  week = {
    "monday": {"apple": 40, "leaf": 40},
    "wednesday": {"sky": 40},
    "friday": {"apple": 20},
  }
  for seed, (day, classes) in enumerate(week.items()):
    for name, count in classes.items():
      photograph(root / day, name, count, seed)
    step = learner.learn(root / day)
    shutil.rmtree(root / day)
    print(
      f"{day}: {len(learner.classes)} classes, "
      f"{learner.ledger().images} images remembered, "
      f"{step['accuracy']['all']:.0f} % of images set aside are right"
    )
  photograph(root / "new", "sky", 5, 99)
  files = sorted((root / "new" / "sky").iterdir())
  images = np.stack([np.asarray(Image.open(file)) for file in files])
  print("new images:", ", ".join(learner.predict(images).names))
  learner.forget("leaf")
  print("after forgetting leaf:", ", ".join(learner.classes))
