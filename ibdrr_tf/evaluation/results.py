"""The record of a run: `results.json`."""

from typing import Any

from ibdrr_tf.evaluation import metrics

__all__ = ["phase_record", "summarize"]


def phase_record(
  *,
  phase: int,
  boundaries: tuple[int, ...],
  confusion: Any,
  train_seconds: float,
  memory: dict[str, Any],
  other_accuracies: dict[str, float] | None = None,
) -> dict[str, Any]:
  """What is known after a phase.

  Args:
    phase: its number; the base phase is 0.
    boundaries: classes seen after each phase up to this one.
    confusion: int [classes, classes] on the test images of all classes seen.
    train_seconds: seconds of training.
    memory: the byte ledger.
    other_accuracies: of a method's other classifiers, by name, in percent; in
      the record only where there are any.
  """
  record = {
    "phase": phase,
    "classes_seen": boundaries[-1],
    "accuracy": metrics.accuracy(confusion),
    "accuracy_by_phase_group": metrics.accuracy_by_group(confusion, boundaries),
    "train_seconds": round(train_seconds, 2),
    "memory": memory,
  }
  if other_accuracies:
    record["other_accuracies"] = other_accuracies
  return record


def summarize(
  phases: list[dict[str, Any]], identity: dict[str, Any]
) -> dict[str, Any]:
  """Joins what a run is with what its phases gave so far.

  Args:
    phases: records of the finished phases, in order, at least one.
    identity: method, dataset, data, backbone, seed, command and versions.

  Returns:
    The contents of results.json. Metrics that need a phase after the base
    phase are None before there is one.
  """
  accuracies = [phase["accuracy"] for phase in phases]
  table = [phase["accuracy_by_phase_group"] for phase in phases]
  return {
    "method": identity["method"],
    "dataset": identity["dataset"],
    "backbone": identity["backbone"],
    "phases": phases,
    "average_accuracy": metrics.average_accuracy(accuracies, with_base=False),
    "average_accuracy_with_base": metrics.average_accuracy(
      accuracies, with_base=True
    ),
    "last_accuracy": accuracies[-1],
    "forgetting": metrics.forgetting(table),
    "backward_transfer": metrics.backward_transfer(table),
    "base_drop": metrics.base_drop(table),
    "data": identity["data"],
    "seed": identity["seed"],
    "command": identity["command"],
    "versions": identity["versions"],
  }
