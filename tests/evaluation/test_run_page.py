"""`report.html` of a run and of a state: what it says is what is known."""

import base64
import hashlib
import io
import re

import numpy as np
import pytest
from pages import Page
from PIL import Image

from ibdrr_tf.evaluation import results as records
from ibdrr_tf.evaluation.ledger import Ledger
from ibdrr_tf.evaluation.predictions import Predictions
from ibdrr_tf.evaluation.recalled import Recalled
from ibdrr_tf.evaluation.run_page import run_page, state_page

EVIL = '<script>alert("x")</script>&\'"'
NAMES = ["cat", EVIL, "dog"]
SHAPE = (8, 8, 3)
# After the last phase: cats are right, half of EVIL are called dog, dogs cat.
LABELS = np.repeat([0, 1, 2], 4)
FIRST = np.repeat([0, 1], 4)
LAST = np.array([0] * 4 + [1, 1, 2, 2] + [2, 2, 2, 0])


def ledger(images):
  return Ledger(
    payload=100 * images, index=7, codec_vqvae=5_000, images=images, codes=64
  ).to_json()


def make_results():
  def confusion(predicted, classes):
    matrix = np.zeros([classes, classes], int)
    np.add.at(matrix, (LABELS[: len(predicted)], predicted), 1)
    return matrix

  phases = [
    records.phase_record(
      phase=phase,
      boundaries=(2, 3)[: phase + 1],
      confusion=confusion(predicted, classes),
      train_seconds=1.0,
      memory=ledger(100 * classes),
    )
    for phase, (predicted, classes) in enumerate(((FIRST, 2), (LAST, 3)))
  ]
  identity = {
    "method": "drr",
    "dataset": EVIL,
    "backbone": {"name": "resnet8", "parameters": 12},
    "data": {"evaluated_on": "test"},
    "seed": 0,
    "command": f"python -m ibdrr_tf.main --workdir={EVIL}",
    "versions": {"numpy": "1"},
  }
  return records.summarize(phases, identity)


@pytest.fixture(scope="module")
def images():
  generator = np.random.default_rng(0)
  return generator.integers(0, 256, (2, *SHAPE)).astype(np.uint8)


@pytest.fixture(scope="module")
def text(images):
  predictions = Predictions.none(LABELS).add(2, FIRST).add(3, LAST)
  noisy = images ^ 16  # Each value is 16 off: 20 log10(255 / 16) dB.
  recalled = Recalled(np.array([0, 1]), noisy, images, {0: 131.4, 1: 90.0})
  return run_page(
    make_results(),
    names=NAMES,
    image_shape=SHAPE,
    predictions=predictions,
    recalled=recalled,
  )


@pytest.fixture(scope="module")
def page(text):
  return Page(text)


def test_curves_have_the_values_of_the_record(page):
  values = {
    group["data-run"]: [
      (circle["data-x"], circle["data-value"])
      for circle in page.find("circle")
      if group in circle.parents
    ]
    for group in page.find("g", "run")
  }
  assert values == {
    "all classes": [("2", "100.00"), ("3", "75.00")],
    "base classes": [("2", "100.00"), ("3", "75.00")],
    "newest classes": [("2", "100.00"), ("3", "75.00")],
  }
  # Higher is better: 100 % lies above 75 %.
  first, last = page.find("circle")[:2]
  assert float(first["cy"]) < float(last["cy"])


def test_bars_are_as_long_as_the_bytes(page):
  bars = {
    bar["data-tip"]: float(bar["width"])
    for bar in page.find("rect")
    if "bytes" in bar["data-tip"]
  }
  assert bars.keys() == {
    "2 classes, images: 20,000 bytes",
    "2 classes, index: 7 bytes",
    "2 classes, VQ-VAE: 5,000 bytes",
    "3 classes, images: 30,000 bytes",
    "3 classes, index: 7 bytes",
    "3 classes, VQ-VAE: 5,000 bytes",
    "as pixels, the same images as pixels: 57,600 bytes",
  }
  whole = bars["as pixels, the same images as pixels: 57,600 bytes"]
  part = bars["3 classes, images: 30,000 bytes"]
  assert part / whole == pytest.approx(30_000 / 57_600, rel=1e-3)
  assert "300 images are remembered in 35,007 bytes" in " ".join(
    p.text for p in page.find("p")
  )


def test_old_and_new_classes_are_told_apart(page):
  tips = {e["data-tip"] for e in page.find("rect") if "%" in e["data-tip"]}
  # Of eight old images six are right and two are called the new class.
  assert {
    "3 classes, old, right: 75.0 %",
    "3 classes, old, taken for a wrong new class: 25.0 %",
    "3 classes, new, right: 75.0 %",
    "3 classes, new, taken for a wrong old class: 25.0 %",
    "phase 0: classes 1–2, called 1: 25.0 %",
    "phase 1: classes 3–3, called 1: 75.0 %",
  } <= tips
  rows = [row.text for row in page.find("tr")]
  assert f"{EVIL}dog50.0 %" in rows and "dogcat25.0 %" in rows


def test_pictures_are_those_of_the_memory(page, images):
  shown = {picture["alt"]: picture["src"] for picture in page.find("img")}
  assert list(shown) == [
    *("cat, original", "cat, from memory"),
    *(f"{EVIL}, original", f"{EVIL}, from memory"),
  ]
  for name, want in (
    ("cat, original", images[0]),
    (f"{EVIL}, from memory", images[1] ^ 16),
  ):
    kind, data = shown[name].split(",", 1)
    assert kind == "data:image/webp;base64"
    with Image.open(io.BytesIO(base64.b64decode(data))) as picture:
      np.testing.assert_array_equal(np.asarray(picture), want)
  captions = [caption.text for caption in page.find("figcaption")]
  assert captions == ["cat24.0 dB, 131 bytes", f"{EVIL}24.0 dB, 90 bytes"]


def test_nothing_that_users_name_becomes_markup(page):
  (script,) = page.find("script")
  assert "alert" not in script.text
  (heading,) = page.find("h1")
  assert heading.text == f"drr on {EVIL}"
  (command,) = page.find("pre")
  assert command.text == f"python -m ibdrr_tf.main --workdir={EVIL}"


def test_a_page_needs_no_network_and_runs_only_its_own_script(text, page):
  assert not re.search(r"https?://|url\(|@import|<link", text)
  (policy,) = page.find("meta", http_equiv="Content-Security-Policy")
  for name in ("style", "script"):
    (element,) = page.find(name)
    digest = hashlib.sha256(element.text.encode()).digest()
    wanted = f"{name}-src 'sha256-{base64.b64encode(digest).decode()}'"
    assert wanted in policy["content"]
  assert policy["content"].startswith("default-src 'none'; img-src data:;")
  assert not any("style" in element.attributes for element in page.elements)


def test_what_is_drawn_is_also_said(page):
  for picture in page.find("svg"):
    assert picture["role"] == "img" and len(picture["aria-label"]) > 20
  heads = [cell.text for cell in page.find("th", scope="col")]
  assert {"phase", "accuracy %", "next MB", "taken for"} <= set(heads)


def test_pictures_stay_within_their_bytes():
  images = np.random.default_rng(0).integers(0, 256, (40, 64, 64, 3))
  images = images.astype(np.uint8)
  recalled = Recalled(np.repeat([0, 1], 20), images, images, {})
  text = run_page(
    make_results(), names=NAMES, image_shape=SHAPE, recalled=recalled
  )
  assert 900_000 < len(text) < 1_100_000
  shown = [picture["alt"] for picture in Page(text).find("img")]
  # Both classes alike, though not all images have room.
  counts = [sum(alt.startswith(name) for alt in shown) for name in NAMES[:2]]
  assert 4 < counts[1] <= counts[0] <= counts[1] + 2
  assert "no loss" in text


def test_the_first_phase_alone_has_a_page():
  results = make_results()
  results["phases"].pop()
  results["average_accuracy"] = results["forgetting"] = None
  predictions = Predictions.none(LABELS).add(2, FIRST)
  page = Page(
    run_page(results, names=NAMES, image_shape=SHAPE, predictions=predictions)
  )
  titles = [heading.text for heading in page.find("h2")]
  assert titles == ["Accuracy as classes are added", "Bytes kept", "Command"]


def test_a_state_has_a_page(images):
  steps = [
    {
      "step": number,
      "kind": "learn",
      "images": 50,
      "new_classes": [name],
      "ledger": ledger(50 * (number + 1)),
      "accuracy": {"all": 80.0 - number, "new": 90.0, "old": old},
    }
    for number, (name, old) in enumerate((("cat", None), (EVIL, 70.0)))
  ]
  steps.append(
    {"step": 2, "kind": "forget", "class": "cat", "ledger": ledger(50)}
  )
  status = {
    "step": 2,
    "method": "drr",
    "classes": [EVIL, "dog"],
    "image_shape": list(SHAPE),
    "ledger": ledger(50),
    "history": steps,
  }
  page = Page(
    state_page(
      status,
      labels=np.array([0, 0, 1]),
      predicted=np.array([0, 1, 1]),
      recalled=Recalled(np.array([0, 1]), images, None, {0: 12.0}),
    )
  )
  values = [
    (circle.parents[-1]["data-run"], circle["data-value"])
    for circle in page.find("circle")
  ]
  assert values == [
    ("all classes", "80.00"),
    ("all classes", "79.00"),
    ("classes of earlier steps", "70.00"),
    ("classes of the step", "90.00"),
    ("classes of the step", "90.00"),
  ]
  rows = [row.text for row in page.find("tr")]
  assert f"{EVIL}dog50.0 %" in rows and "2–forgot cat" in rows
  assert [picture["alt"] for picture in page.find("img")] == [
    f"{EVIL}, from memory",
    "dog, from memory",
  ]
  assert [c.text for c in page.find("figcaption")] == [f"{EVIL}12 bytes", "dog"]
