"""Part of an HTML page: what memory gives back, beside the originals."""

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from ibdrr_tf.evaluation.html_page import Markup, picture, section, tag
from ibdrr_tf.evaluation.recalled import Recalled, psnr

__all__ = ["gallery"]

# Of a page: pictures are encoded until they take this much.
_MOST_BYTES = 1_000_000


def gallery(
  recalled: Recalled | None, names: Sequence[str], most: int = _MOST_BYTES
) -> Markup:
  """The section with the images, as many as fit.

  Args:
    recalled: the images; None if memory keeps none.
    names: of the classes, by label.
    most: bytes of all pictures.
  """
  title = "What memory gives back"
  if recalled is None or not len(recalled.labels):
    text = "This method keeps no images."
    return section(title, tag("p", text, class_="quiet"))
  shown, size = [], 0
  # One of each class before a second of any: a page may have room for few.
  for number in _by_turns(recalled.labels):
    pictures = _pictures(recalled, number, names)
    size += sum(map(len, pictures))
    if shown and size > most:
      break
    shown.append((number, pictures))
  text = "Originals are gone; these images were made from memory alone."
  if recalled.originals is not None:
    text = "Above the originals, below what the memory on the disk gives back."
  if recalled.bytes_of:
    text += (
      " Bytes are the mean of a class, without index and models: of its files, "
      "or of the chains of bit-strings that hold its images."
    )
  return section(
    title,
    tag("p", text),
    tag("div", *_cards(recalled, sorted(shown), names), class_="gallery"),
  )


def _pictures(
  recalled: Recalled, number: int, names: Sequence[str]
) -> tuple[Markup, ...]:
  """The original, where there is one, and what memory gives back."""
  name, image = names[recalled.labels[number]], recalled.images[number]
  restored = picture(image, f"{name}, from memory")
  if recalled.originals is None:
    return (restored,)
  return picture(recalled.originals[number], f"{name}, original"), restored


def _cards(
  recalled: Recalled,
  shown: list[tuple[int, tuple[Markup, ...]]],
  names: Sequence[str],
) -> Iterator[Markup]:
  """One card a class: its name, mean PSNR and bytes, and its pictures."""
  by_label = itertools.groupby(shown, lambda one: recalled.labels[one[0]])
  for label, group in by_label:
    group = list(group)
    facts = []
    if recalled.originals is not None:
      values = [
        psnr(recalled.originals[number], recalled.images[number])
        for number, _ in group
      ]
      mean = sum(values) / len(values)
      facts.append("no loss" if math.isinf(mean) else f"{mean:.1f} dB")
    if int(label) in recalled.bytes_of:
      facts.append(f"{recalled.bytes_of[int(label)]:,.0f} bytes")
    rows = zip(*(pictures for _, pictures in group), strict=True)
    yield tag(
      "figure",
      tag("figcaption", tag("b", names[label]), ", ".join(facts)),
      *(tag("div", *row, class_="row") for row in rows),
    )


def _by_turns(labels: np.ndarray) -> list[int]:
  """Indices: the first image of each label, then the second of each."""
  turn = {}
  for number, label in enumerate(labels.tolist()):
    turn.setdefault(label, []).append(number)
  longest = max(map(len, turn.values()))
  return [m[k] for k in range(longest) for m in turn.values() if k < len(m)]
