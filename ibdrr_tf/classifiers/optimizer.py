"""The paper's optimiser: SGD with L2 decay, warm-up and three steps down.

Also the same decay for Adam, which GFR uses.
"""

import dataclasses

import tensorflow as tf

__all__ = [
  "L2SGD",
  "L2Adam",
  "OneCycle",
  "WarmupSteps",
  "cosine_sgd",
  "one_cycle_sgd",
  "paper_sgd",
  "stepped_adam",
]


class _L2:
  """Weight decay as the gradient of an L2 penalty, for a Keras optimiser.

  Keras' own `weight_decay` shrinks the weights beside the momentum, which is
  about ten times weaker at momentum .9. Here `l2 * w` is added to the gradient
  and so passes through the momentum, for every trainable variable, as in
  PyTorch. It is added after gradients have been summed over replicas, hence
  once whatever their number.
  """

  def __init__(self, *args, l2: float = 0.0, **kwargs):
    kwargs.setdefault("name", type(self).__name__)
    super().__init__(*args, **kwargs)
    self.l2 = l2

  def update_step(self, gradient: tf.Tensor, variable: tf.Variable) -> None:
    """Moves one variable by its gradient plus the decay."""
    super().update_step(gradient + self.l2 * variable, variable)

  def get_config(self) -> dict:
    """Arguments from which Keras can make this optimiser again."""
    return {**super().get_config(), "l2": self.l2}


class L2SGD(_L2, tf.keras.optimizers.SGD):
  """SGD with L2 decay."""


class L2Adam(_L2, tf.keras.optimizers.Adam):
  """Adam with L2 decay, which passes through its moments (not AdamW)."""


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


@dataclasses.dataclass
class OneCycle(tf.keras.optimizers.schedules.LearningRateSchedule):
  """A linear rise over the first fifth of the steps, then a linear fall to 0.

  Attributes:
    peak: the highest learning rate.
    steps: all steps of the training.
  """

  peak: float
  steps: int

  def __call__(self, step: tf.Tensor) -> tf.Tensor:
    """The learning rate of a step, float32."""
    step = tf.cast(step, tf.float32) + 1.0
    rise = max(round(0.2 * self.steps), 1)
    falling = (self.steps + 1 - step) / max(self.steps + 1 - rise, 1)
    return self.peak * tf.clip_by_value(tf.minimum(step / rise, falling), 0, 1)

  def get_config(self) -> dict:
    """Arguments from which Keras can make this schedule again."""
    return dataclasses.asdict(self)


class KernelL2SGD(L2SGD):
  """SGD with L2 decay of kernels only: not of biases and batch norm."""

  def update_step(self, gradient: tf.Tensor, variable: tf.Variable) -> None:
    """Moves one variable by its gradient, plus the decay if it is a kernel."""
    decay = self.l2 * variable if len(variable.shape) > 1 else 0.0
    tf.keras.optimizers.SGD.update_step(self, gradient + decay, variable)


def one_cycle_sgd(
  *, steps: int, learning_rate: float, momentum: float, l2: float
) -> L2SGD:
  """SGD with Nesterov momentum whose rate rises and falls once.

  A short training ends higher than with the paper's steps.

  Args:
    steps: all steps of the training.
    learning_rate: the highest.
    momentum: of SGD.
    l2: weight decay of kernels, as an L2 gradient term.
  """
  return KernelL2SGD(
    OneCycle(learning_rate, steps),
    momentum=momentum,
    nesterov=True,
    l2=l2,
    jit_compile=False,
  )


def cosine_sgd(
  *, steps: int, learning_rate: float, momentum: float, l2: float
) -> L2SGD:
  """SGD whose rate falls to 0 along half a cosine.

  Args:
    steps: all steps of the training.
    learning_rate: the first.
    momentum: of SGD.
    l2: weight decay, as an L2 gradient term.
  """
  schedule = tf.keras.optimizers.schedules.CosineDecay(learning_rate, steps)
  return L2SGD(schedule, momentum=momentum, l2=l2, jit_compile=False)


def stepped_adam(
  *,
  steps: int,
  learning_rate: float,
  milestones: tuple[float, ...],
  factor: float,
  l2: float = 0.0,
  beta_1: float = 0.9,
) -> L2Adam:
  """Adam whose rate is divided at some shares of all steps.

  Args:
    steps: all steps of the training.
    learning_rate: the rate before the first milestone.
    milestones: shares of the steps.
    factor: what the rate is divided by after each.
    l2: weight decay, as an L2 gradient term.
    beta_1: decay of the first moment.
  """
  schedule = WarmupSteps(
    peak=learning_rate,
    warmup=0,
    milestones=tuple(round(share * steps) for share in milestones),
    factor=factor,
  )
  return L2Adam(schedule, beta_1=beta_1, l2=l2, epsilon=1e-8, jit_compile=False)
