"""The phase loop: learn a phase, remember it, evaluate, write it down."""

import functools
import importlib.metadata
import pathlib
import platform
import shutil
from typing import Any

import ml_collections
import numpy as np
import tensorflow as tf

from ibdrr_tf import files
from ibdrr_tf.classifiers.classifier import plain
from ibdrr_tf.codec_training import check_codec, export_codec, prepare_codec
from ibdrr_tf.data import stream
from ibdrr_tf.data.load import fingerprint, load_data
from ibdrr_tf.data.scenario import Scenario
from ibdrr_tf.data.source import Source
from ibdrr_tf.distribution import Team
from ibdrr_tf.evaluation import figures, metrics, report
from ibdrr_tf.evaluation import results as records
from ibdrr_tf.evaluation.ledger import Ledger
from ibdrr_tf.methods import METHODS, Method
from ibdrr_tf.workdir import open_workdir

__all__ = ["run_experiment"]


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
  if METHODS[config.method].uses_codec:
    check_codec(config, workdir)
  source, scenario = load_data(config)
  team = Team(strategy)
  claimed = open_workdir(
    workdir, config, resume=resume, data=fingerprint(source), team=team
  )
  # Weights and batches are stateless functions of the seed; with deterministic
  # ops a run that was interrupted ends with the very same table.
  tf.config.experimental.enable_op_determinism()
  phases = list(claimed.results["phases"]) if claimed.results else []
  results = claimed.results
  team.say(f"{config.method} on {config.dataset}, in {claimed.path}")
  team.say(report.phase_header())
  for record in phases:
    team.say(report.phase_row(record))
  if claimed.is_finished(len(scenario.phases)):
    team.say(f"\n{report.summary(results)}")
    return results
  method = _make_method(config, scenario, source, claimed.path, strategy)
  if phases:
    method.restore(phases[-1]["phase"])
  for phase in scenario.phases[len(phases) :]:
    record, confusion = _run_phase(method, phase)
    phases.append(record)
    # Its weights are read by all workers, though one writes them down.
    network = plain(method.classifier)
    results = records.summarize(phases, _identity(config, network, command))
    team.on_chief(
      functools.partial(_write_phase, method, network, results, confusion)
    )
    team.say(report.phase_row(record))
  team.say(f"\n{report.summary(results)}")
  return results


def _make_method(
  config: ml_collections.ConfigDict,
  scenario: Scenario,
  source: Source,
  path: pathlib.Path,
  strategy: tf.distribute.Strategy,
) -> Method:
  """The method of a run, with a codec if it asks for one."""
  kind = METHODS[config.method]
  if not kind.uses_codec:
    return kind(config, scenario, source, path, strategy)
  codec = prepare_codec(config, source, scenario, path, strategy)
  return kind(config, scenario, source, path, strategy, codec=codec)


def _run_phase(method: Method, phase: int) -> tuple[dict[str, Any], np.ndarray]:
  """Learns, remembers and evaluates; gives the record and the confusion."""
  scenario = method.scenario
  seconds = method.learn(phase)
  method.remember(phase)
  seen = scenario.seen_labels(phase)
  test = stream.select(method.source.test, scenario, seen)
  confusion = metrics.confusion_matrix(
    test.labels, method.predict(test), len(seen)
  )
  record = records.phase_record(
    phase=phase,
    boundaries=scenario.boundaries[: phase + 1],
    confusion=confusion,
    train_seconds=seconds,
    memory=Ledger(**method.stored_bytes(phase)).to_json(),
    other_accuracies={
      name: 100.0 * float(np.mean(predictions == test.labels))
      for name, predictions in method.other_predictions(test).items()
    },
  )
  return record, confusion


def _write_phase(
  method: Method,
  network: tf.keras.Model,
  results: dict[str, Any],
  confusion: np.ndarray,
) -> None:
  """Writes all that can be seen after a phase; results.json comes last.

  A phase counts as done once results.json names it, so whatever precedes it is
  written again when the process is killed in between.
  """
  path, scenario = method.workdir, method.scenario
  phase = results["phases"][-1]["phase"]
  boundaries = scenario.boundaries[: phase + 1]
  _write_classifier(method, network)
  if method.uses_codec and phase == scenario.phases[-1]:
    export_codec(path / "codec")
  _write_summaries(path / "tensorboard", results, confusion, boundaries)
  curve = figures.phase_accuracy_figure({results["method"]: [results]})
  files.write_bytes(path / "phase_accuracy.png", figures.to_png(curve))
  files.write_text(path / "report.md", report.markdown(results))
  files.write_json(path / "results.json", results)
  # Only the last phase's weights can be needed again.
  for earlier in range(phase):
    for stage in ("phase", "bitswap"):
      folder = path / "checkpoints" / f"{stage}-{earlier:03d}"
      shutil.rmtree(folder, ignore_errors=True)


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


def _write_classifier(method: Method, network: tf.keras.Model) -> None:
  """Saves the network with the names of its classes, in label order."""
  folder = method.workdir / "classifier"
  with files.replaced(folder / "classifier.keras") as beside:
    network.save(beside)
  order = method.scenario.order[: method.classifier.classes]
  names = [method.source.class_names[number] for number in order]
  files.write_json(folder / "class_names.json", names)


def _identity(
  config: ml_collections.ConfigDict, network: tf.keras.Model, command: str
) -> dict[str, Any]:
  """What a run is, apart from what it gave."""
  backbone = config.classifier
  return {
    "method": config.method,
    "dataset": config.dataset,
    "backbone": {
      "name": f"{backbone.backbone} of width {backbone.width}",
      "parameters": sum(
        int(np.prod(weight.shape)) for weight in network.trainable_weights
      ),
    },
    "seed": config.seed,
    "command": command,
    "versions": {
      "python": platform.python_version(),
      **{
        name: importlib.metadata.version(name)
        for name in (
          "ibdrr_tf",
          "tensorflow",
          "tensorflow-compression",
          "keras",
          "numpy",
        )
      },
    },
  }
