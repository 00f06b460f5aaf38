"""The two ways in which a learner's state changes: learning and forgetting.

Both read the state that the step before has left and write the next one beside
it. The state changes by one rename, in `OpenState.commit`.
"""

import dataclasses
from typing import Any

import tensorflow as tf

from ibdrr_tf.classifiers.shrink import without_class
from ibdrr_tf.data.task import Task
from ibdrr_tf.methods import Step, learn_step
from ibdrr_tf.open_state import OpenState
from ibdrr_tf.state import State
from ibdrr_tf.state_config import to_stored
from ibdrr_tf.step_evaluation import accuracy_on_held_out, codec_quality

__all__ = ["forget_class", "learn_task"]


def learn_task(
  opened: OpenState, task: Task, classes: tuple[str, ...], print_: str
) -> dict[str, Any]:
  """Trains on memory and new images, remembers these, and commits.

  Args:
    opened: the state, locked.
    task: the new images.
    classes: names of all classes after the step.
    print_: fingerprint of the data.

  Returns:
    What the step did, as in `Learner.history`.
  """
  # Weights and batches are stateless functions of the seed; with deterministic
  # ops a step that was interrupted ends with the same result.
  tf.config.experimental.enable_op_determinism()
  opened.claim(print_)
  config, method = opened.config, opened.method
  memory, codec = opened.open_memory(task)
  old = opened.network if opened.state and opened.state.network else None
  step = Step(config, opened.strategy, opened.path, task, memory, old)
  before = memory.stored_bytes()
  network, seconds = learn_step(method, step)
  if len(task.new) or opened.exceeds_budget():
    memory.add(task, network)
  else:
    memory.folder.write(task.step, memory.folder.parts)
  built = {"classes": task.classes, "old_classes": task.old_classes}
  if method.grows:
    built["backbones"] = network.classifier.backbones
  opened.networks.write(task.step, network.classifier)
  if config.classifier.stored != "float32":
    # What is evaluated is the network that the next step will find.
    shape = tuple(task.new.image_shape)
    network = opened.networks.read(task.step, built, shape)
  record = {
    "step": task.step,
    "kind": "learn",
    "fingerprint": print_,
    "new_classes": list(classes[task.old_classes :]),
    "images": len(task.new),
    "held_out": len(task.held_out) if task.held_out is not None else 0,
    "seconds": round(seconds, 2),
    "dropped": memory.dropped,
    "ledger": opened.ledger(task.step, network.classifier).to_json(),
    **codec_quality(task, codec, memory, before),
  }
  quality = getattr(memory, "quality", None)
  if quality is not None:
    record["quality"] = quality
  if opened.state is None and opened.choice:
    record["choice"] = opened.choice
  accuracy = accuracy_on_held_out(method, network, memory, task)
  if accuracy["all"] is not None:
    record["accuracy"] = accuracy
  state = State(
    task.step,
    classes,
    tuple(task.new.image_shape),
    to_stored(config),
    built,
    (*opened.history, record),
  )
  opened.commit(state, network)
  return record


def forget_class(opened: OpenState, name: str) -> None:
  """Takes a class out of memory and of the network's head, and commits.

  Args:
    opened: the state, locked.
    name: of a class that it knows.
  """
  old = opened.state
  label, step = old.classes.index(name), old.step + 1
  opened.memory.forget(step, label)
  network = smaller = None
  if len(old.classes) > 1:
    known = old.network["old_classes"]
    network = {
      **old.network,
      "classes": old.network["classes"] - 1,
      "old_classes": known - (label < known),
    }
    smaller = opened.networks.build(network, opened.image_shape)
    without_class(opened.network.classifier, smaller, label)
    opened.networks.write(step, smaller)
  record = {
    "step": step,
    "kind": "forget",
    "class": name,
    "ledger": opened.ledger(step, smaller).to_json(),
  }
  state = dataclasses.replace(
    old,
    step=step,
    classes=tuple(other for other in old.classes if other != name),
    network=network,
    steps=(*old.steps, record),
  )
  opened.commit(state, None)
