"""The benchmark: a learner is given one phase after another."""

import dataclasses
import functools
import importlib.metadata
import pathlib
import platform
from typing import Any

import ml_collections
import numpy as np
import tensorflow as tf

from ibdrr_tf import files
from ibdrr_tf.classifiers.classifier import plain
from ibdrr_tf.codec_training import export_codec
from ibdrr_tf.data.examples import select
from ibdrr_tf.data.load import describe, fingerprint, load_data
from ibdrr_tf.data.scenario import Scenario
from ibdrr_tf.data.source import Source
from ibdrr_tf.distribution import Team
from ibdrr_tf.errors import UserError
from ibdrr_tf.evaluation import figures, metrics, report
from ibdrr_tf.evaluation import results as records
from ibdrr_tf.evaluation.predictions import Predictions, read_predictions
from ibdrr_tf.evaluation.recalled import Recalled
from ibdrr_tf.evaluation.run_page import run_page
from ibdrr_tf.learner import Learner
from ibdrr_tf.methods import check_method
from ibdrr_tf.replay.originals import with_originals
from ibdrr_tf.validation import check_codec
from ibdrr_tf.workdir import open_workdir

__all__ = ["run_experiment"]

# Of both stacks; versions of those that are installed are recorded.
_PACKAGES = (
  "ibdrr_tf",
  "tensorflow",
  "tensorflow-compression",
  "tensorflow-compression-ops",
  "keras",
  "tf-keras",
  "numpy",
)


# In report.html: classes, and images of each.
_SHOWN_CLASSES, _SHOWN_IMAGES = 20, 3


def run_experiment(
  config: ml_collections.ConfigDict,
  workdir: str,
  *,
  strategy: tf.distribute.Strategy,
  resume: bool = False,
  command: str = "",
) -> dict[str, Any]:
  """Runs all phases that are not yet done and leaves a complete workdir.

  Args:
    config: a validated configuration.
    workdir: folder of the run.
    strategy: models are made within its scope.
    resume: whether to go on with a run that is there.
    command: how the run was started, for the record.

  Returns:
    The contents of results.json.
  """
  if check_method(config).uses_codec:
    check_codec(config, workdir)
  source, scenario = load_data(config)
  team = Team(strategy)
  claimed = open_workdir(
    workdir, config, resume=resume, data=fingerprint(source), team=team
  )
  learner = Learner(claimed.path, config=config, strategy=strategy)
  phases = list(claimed.results["phases"]) if claimed.results else []
  predictions = _predictions(claimed.path, source, scenario)
  results = claimed.results
  team.say(f"{config.method} on {config.dataset}, in {claimed.path}")
  team.say(report.phase_header())
  for record in phases:
    team.say(report.phase_row(record))
  if claimed.is_finished(len(scenario.phases)):
    team.say(f"\n{report.summary(results)}")
    return results
  with learner.lock():
    for phase in scenario.phases[len(phases) :]:
      record, predicted = _run_phase(learner, source, scenario, phase)
      predictions = predictions.up_to(phase).add(
        scenario.classes_seen(phase), predicted
      )
      phases.append(record)
      # Its weights are read by all workers, though one writes them down.
      network = plain(learner.network.classifier)
      identity = _identity(config, source, scenario, network, command)
      results = records.summarize(phases, identity)
      team.on_chief(
        functools.partial(
          _write_phase, learner, source, scenario, results, predictions
        )
      )
      team.say(report.phase_row(record))
  team.say(f"\n{report.summary(results)}")
  return results


def _run_phase(
  learner: Learner, source: Source, scenario: Scenario, phase: int
) -> tuple[dict[str, Any], np.ndarray]:
  """Learns the classes of a phase, unless that is done, and evaluates.

  Returns:
    The record of the phase, and the predicted labels of the test images of all
    classes seen, int64 [n].
  """
  if learner.step < phase:
    labels = scenario.new_labels(phase)
    new = select(source.train, scenario, labels)
    new = dataclasses.replace(new, labels=new.labels - labels.start)
    order = scenario.order[labels.start : labels.stop]
    learner.learn_examples([source.class_names[k] for k in order], new)
  seen = scenario.seen_labels(phase)
  order = scenario.order[: len(seen)]
  _check_classes(learner, [source.class_names[k] for k in order])
  test = select(source.test, scenario, seen)
  predicted = learner.scores(test).argmax(axis=1)
  record = records.phase_record(
    phase=phase,
    boundaries=scenario.boundaries[: phase + 1],
    confusion=metrics.confusion_matrix(test.labels, predicted, len(seen)),
    train_seconds=learner.history[phase]["seconds"],
    memory=learner.ledger().to_json(),
    other_accuracies={
      name: 100.0 * float(np.mean(scores.argmax(axis=1) == test.labels))
      for name, scores in learner.other_scores(test).items()
    },
  )
  return record, predicted


def _predictions(
  folder: pathlib.Path, source: Source, scenario: Scenario
) -> Predictions:
  """Those of the finished phases."""
  test = select(source.test, scenario, scenario.seen_labels(-1))
  kept = read_predictions(folder)
  return Predictions.none(test.labels) if kept is None else kept


def _check_classes(learner: Learner, names: list[str]) -> None:
  """Refuses a state that has learned something else in between."""
  if list(learner.classes) != names:
    raise UserError(
      f"the state {learner.path} has learned other classes than those of this "
      f"benchmark: choose another --workdir."
    )


def _write_phase(
  learner: Learner,
  source: Source,
  scenario: Scenario,
  results: dict[str, Any],
  predictions: Predictions,
) -> None:
  """Writes all that can be seen after a phase; results.json comes last.

  A phase counts as evaluated once results.json names it, so whatever precedes
  it is written again when the process is killed in between.
  """
  path, phase = learner.path, results["phases"][-1]["phase"]
  boundaries = scenario.boundaries[: phase + 1]
  recalled = None
  if phase == scenario.phases[-1]:
    if (path / "codec").is_dir():
      export_codec(path / "codec")
    recalled = _recalled(learner, source, scenario)
  predictions.write(path)
  seen = predictions.labels < boundaries[-1]
  confusion = metrics.confusion_matrix(
    predictions.labels[seen], predictions.predicted[-1][seen], boundaries[-1]
  )
  _write_summaries(path / "tensorboard", results, confusion, boundaries)
  curve = figures.phase_accuracy_figure({results["method"]: [results]})
  files.write_bytes(path / "phase_accuracy.png", figures.to_png(curve))
  files.write_text(path / "report.md", report.markdown(results))
  web_page = run_page(
    results,
    names=learner.classes,
    image_shape=learner.image_shape,
    predictions=predictions,
    recalled=recalled,
  )
  files.write_text(path / "report.html", web_page)
  files.write_json(path / "results.json", results)


def _recalled(
  learner: Learner, source: Source, scenario: Scenario
) -> Recalled | None:
  """Some images of memory, of classes of all phases, with their originals."""
  count = len(learner.classes)
  labels = np.unique(np.linspace(0, count - 1, _SHOWN_CLASSES).astype(int))
  recalled = learner.memory.sample(labels.tolist(), _SHOWN_IMAGES)
  if recalled is None:
    return None
  learned = select(source.train, scenario, scenario.seen_labels(-1))
  return with_originals(recalled, learned)


def _write_summaries(
  path: pathlib.Path,
  results: dict[str, Any],
  confusion: np.ndarray,
  boundaries: tuple[int, ...],
) -> None:
  """Accuracies, bytes and the confusion matrix, by phase, for TensorBoard."""
  last = results["phases"][-1]
  picture = figures.to_png(figures.confusion_figure(confusion, boundaries))
  writer = tf.summary.create_file_writer(str(path / "phases"))
  with writer.as_default(step=last["phase"]):
    tf.summary.scalar("accuracy/all classes seen", last["accuracy"])
    for group, value in enumerate(last["accuracy_by_phase_group"]):
      tf.summary.scalar(f"accuracy/classes of phase {group}", value)
    for name, value in last.get("other_accuracies", {}).items():
      tf.summary.scalar(f"accuracy/{name}", value)
    for name, value in last["memory"].items():
      if value is not None:
        tf.summary.scalar(f"memory/{name}", value)
    tf.summary.image("confusion", tf.io.decode_png(picture)[tf.newaxis])
  writer.close()


def _identity(
  config: ml_collections.ConfigDict,
  source: Source,
  scenario: Scenario,
  network: tf.keras.Model,
  command: str,
) -> dict[str, Any]:
  """What a run is, apart from what it gave."""
  backbone = config.classifier
  network.trainable = True  # Frozen parts are parameters too.
  return {
    "method": config.method,
    "dataset": config.dataset,
    "backbone": {
      "name": f"{backbone.backbone} of width {backbone.width}",
      "parameters": sum(
        int(np.prod(weight.shape)) for weight in network.trainable_weights
      ),
    },
    "data": describe(config, source, scenario),
    "seed": config.seed,
    "command": command,
    "versions": {
      "python": platform.python_version(),
      **{
        name: importlib.metadata.version(name)
        for name in _PACKAGES
        if any(importlib.metadata.distributions(name=name))
      },
    },
  }
