"""The paper's optimiser: SGD with L2 decay, warm-up and three steps down."""

import dataclasses

import tensorflow as tf

__all__ = ["L2SGD", "WarmupSteps", "paper_sgd"]


class L2SGD(tf.keras.optimizers.SGD):
  """SGD whose weight decay is the gradient of an L2 penalty.

  Keras' own `weight_decay` shrinks the weights beside the momentum, which is
  about ten times weaker at momentum .9. Here `l2 * w` is added to the gradient
  and so passes through the momentum, for every trainable variable, as in
  PyTorch. It is added after gradients have been summed over replicas, hence
  once whatever their number.
  """

  def __init__(self, *args, l2: float = 0.0, name: str = "L2SGD", **kwargs):
    super().__init__(*args, name=name, **kwargs)
    self.l2 = l2

  def update_step(self, gradient: tf.Tensor, variable: tf.Variable) -> None:
    """Moves one variable by its gradient plus the decay."""
    super().update_step(gradient + self.l2 * variable, variable)

  def get_config(self) -> dict:
    """Arguments from which Keras can make this optimiser again."""
    return {**super().get_config(), "l2": self.l2}


@dataclasses.dataclass
class WarmupSteps(tf.keras.optimizers.schedules.LearningRateSchedule):
  """A linear warm-up, then division by a factor after each milestone.

  Attributes:
    peak: the learning rate after warm-up.
    warmup: number of steps over which it rises from (almost) zero.
    milestones: steps after which it is divided.
    factor: by how much.
  """

  peak: float
  warmup: int
  milestones: tuple[int, ...]
  factor: float

  def __call__(self, step: tf.Tensor) -> tf.Tensor:
    """The learning rate of a step, float32."""
    step = tf.cast(step, tf.float32)
    passed = tf.zeros([])
    for milestone in self.milestones:
      passed += tf.cast(step >= milestone, tf.float32)
    rate = self.peak * self.factor**-passed
    rising = self.peak * (step + 1) / max(self.warmup, 1)
    return tf.where(step < self.warmup, rising, rate)

  def get_config(self) -> dict:
    """Arguments from which Keras can make this schedule again."""
    return dataclasses.asdict(self)


def paper_sgd(
  *,
  epochs: int,
  steps_per_epoch: int,
  learning_rate: float,
  momentum: float,
  l2: float,
  milestones: tuple[float, ...] = (0.3, 0.6, 0.8),
  factor: float = 5.0,
  warmup_epochs: float = 5.0,
  warmup_share: float = 0.1,
) -> L2SGD:
  """The optimiser of one phase.

  With 200 epochs the rate is divided by 5 after epochs 60, 120 and 160 and
  rises over the first 5; short runs keep the proportions.

  Args:
    epochs: epochs of the phase.
    steps_per_epoch: steps in each of them.
    learning_rate: the rate after warm-up.
    momentum: of SGD.
    l2: weight decay, as an L2 gradient term.
    milestones: shares of the epochs after which the rate is divided.
    factor: what it is divided by.
    warmup_epochs: epochs of warm-up ...
    warmup_share: ... but at most this share of all epochs.
  """
  warmup = min(warmup_epochs, warmup_share * epochs)
  schedule = WarmupSteps(
    peak=learning_rate,
    warmup=round(warmup * steps_per_epoch),
    milestones=tuple(round(m * epochs) * steps_per_epoch for m in milestones),
    factor=factor,
  )
  return L2SGD(schedule, momentum=momentum, l2=l2, jit_compile=False)
