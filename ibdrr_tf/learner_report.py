"""What a learner knows, for people at a shell."""

import math
import pathlib
from typing import Any

from ibdrr_tf.evaluation.ledger import PARTS
from ibdrr_tf.state import State

__all__ = ["as_json", "evaluation", "status", "step", "warnings"]

_SHOWN = 12  # class names in a line
# How far a step may be from the first before the codec is called unsuited.
_FAR_PSNR = 3.0
_FAR_BITS = 1.1
# Fewer images than this pay for the start of their chain above all.
_ENOUGH = 100


def step(state: State, record: dict[str, Any], folder: pathlib.Path) -> str:
  """What a step did, and what is known now."""
  new = record["new_classes"]
  head = f"step {record['step']}: {record['images']:,} images learned"
  if new:
    head += f", {_count(len(new), 'new class', 'new classes')} ({_names(new)})"
  lines = [head]
  if record["held_out"]:
    images = _count(record["held_out"], "image", "images")
    lines.append(f"{images} set aside to test with")
  lines += _coarser(state, record)
  if record["dropped"]:
    lines.append(
      f"{record['dropped']:,} images given up to hold the byte budget, of all "
      f"classes alike"
    )
  return "\n".join([*lines, *_known(state), f"next: {_next(folder)}"])


def status(state: State, folder: pathlib.Path) -> str:
  """What a state knows, and how it came to."""
  lines = [f"{folder}: {state.config['method']}, step {state.step}"]
  if state.steps[0].get("choice"):
    lines.append(f"chosen: {state.steps[0]['choice']}")
  lines += _known(state)
  lines.append("history:")
  for record in state.steps:
    lines.append(f"  {_history(record)}")
  return "\n".join(lines)


def as_json(state: State) -> dict[str, Any]:
  """The same for programs."""
  return {
    "step": state.step,
    "method": state.config["method"],
    "classes": list(state.classes),
    "image_shape": list(state.image_shape),
    "ledger": state.steps[-1]["ledger"],
    "history": list(state.steps),
  }


def evaluation(result: dict[str, Any]) -> str:
  """Accuracy overall and by class."""
  lines = [f"accuracy: {result['accuracy']:.2f} % of {result['images']} images"]
  width = max(map(len, result["by_class"]))
  for name, value in result["by_class"].items():
    unknown = "  not a known class" if name in result["unknown_classes"] else ""
    lines.append(f"  {name.ljust(width)}  {value:6.2f} %{unknown}")
  return "\n".join(lines)


def warnings(state: State) -> list[str]:
  """What a user should know about the last step, one sentence each."""
  found = []
  learned = [record for record in state.steps if record["kind"] == "learn"]
  first, last = learned[0], learned[-1]
  # Coarser codes are worse by choice, whatever the images.
  is_alike = last.get("detail") == first.get("detail")
  if (
    is_alike and last.get("psnr") is not None and first.get("psnr") is not None
  ):
    if last["psnr"] < first["psnr"] - _FAR_PSNR:
      found.append(
        f"the codec suits these images badly: {last['psnr']:.1f} dB, where the "
        f"first step had {first['psnr']:.1f}; a codec trained on such images "
        f"would keep more of them."
      )
    is_costly = last["bits_per_code"] > _FAR_BITS * first["bits_per_code"]
    if is_costly and last["images"] >= _ENOUGH:
      found.append(
        f"these images cost {last['bits_per_code']:.2f} bits a code, where the "
        f"first step had {first['bits_per_code']:.2f}: fit Bit-Swap again with "
        f"--config.bitswap.refit=always."
      )
  ledger = last["ledger"]
  pixels = ledger["images"] * math.prod(state.image_shape)
  if ledger["images"] and ledger["total"] > pixels:
    found.append(
      f"memory takes {ledger['total']:,} bytes, more than the {pixels:,} of "
      f"the images' pixels: for so few images, --method=upper_bound keeps the "
      f"pixels, and --method=sheet_replay needs no codec."
    )
  return found


def _known(state: State) -> list[str]:
  """Classes, images, bytes and accuracy, as of the last step."""
  last = state.steps[-1]
  ledger = last["ledger"]
  pixels = ledger["images"] * math.prod(state.image_shape)
  parts = [
    f"{name} {ledger[field]:,}"
    for field, name in PARTS.items()
    if ledger[field]
  ]
  size = f"{state.image_shape[0]} x {state.image_shape[1]}"
  lines = [
    f"classes: {len(state.classes)} ({_names(state.classes)})",
    f"images remembered: {ledger['images']:,} of {size} pixels",
    f"bytes: {ledger['total']:,} ({', '.join(parts) or 'nothing'}); the pixels "
    f"of these images take {pixels:,}",
  ]
  codec = ledger["codec_vqvae"] + ledger["codec_bitswap"]
  if codec:
    lines.append(
      f"without the codec, which serves any number of memories: "
      f"{ledger['total'] - codec:,} bytes"
    )
  accuracy = last.get("accuracy")
  if accuracy and accuracy["all"] is not None:
    old = accuracy["old"]
    text = f"accuracy on images set aside: {accuracy['all']:.1f} %"
    if accuracy["new"] is not None:
      text += f"; classes of this step {accuracy['new']:.1f} %"
    if old is not None:
      text += f"; other classes {old:.1f} % (as memory gives them back)"
    elif last["step"] and not ledger["images"]:
      text += "; other classes are not tested: memory keeps no images of them"
    lines.append(text)
  return lines


def _coarser(state: State, record: dict[str, Any]) -> list[str]:
  """A line if a step keeps images in less quality or detail than before."""
  before = [other for other in state.steps if other["step"] < record["step"]]
  for name in ("quality", "detail"):
    known = [other[name] for other in before if other.get(name) is not None]
    now = record.get(name)
    if known and now is not None and now < known[-1]:
      return [
        f"all images are coarser now: {name} {now} of 100 instead of "
        f"{known[-1]}"
      ]
  return []


def _history(record: dict[str, Any]) -> str:
  if record["kind"] == "forget":
    return f"step {record['step']}: forgot {record['class']}"
  text = f"step {record['step']}: {record['images']:,} images"
  if record["new_classes"]:
    text += f", new classes {_names(record['new_classes'])}"
  accuracy = (record.get("accuracy") or {}).get("all")
  if accuracy is not None:
    text += f", {accuracy:.1f} %"
  return f"{text}, {record['ledger']['total']:,} bytes"


def _next(folder: pathlib.Path) -> str:
  return f"ibdrr classify IMAGE --state={folder}"


def _names(names) -> str:
  names = list(names)
  more = len(names) - _SHOWN
  return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _count(number: int, one: str, many: str) -> str:
  return f"{number:,} {one if number == 1 else many}"
