"""Where models live: one device, or several that act as one."""

import tensorflow as tf

from ibdrr_tf.errors import UserError

__all__ = ["STRATEGIES", "make_strategy"]

STRATEGIES = ("auto", "none", "mirrored")


def make_strategy(name: str, cpu_devices: int = 0) -> tf.distribute.Strategy:
  """Makes the strategy under whose scope models are built.

  Args:
    name: "none" is one device; "mirrored" is all GPUs, or the logical CPU
      devices; "auto" is mirrored where there is more than one device to use.
    cpu_devices: divides the CPU into this many logical devices, to try
      `mirrored` where there is no GPU; 0 leaves it whole.
  """
  if name not in STRATEGIES:
    raise UserError(
      f"--distribute={name} is unknown: choose from {', '.join(STRATEGIES)}."
    )
  if cpu_devices < 0:
    raise UserError(f"--cpu_devices={cpu_devices} is negative: give 0 or more.")
  if cpu_devices:
    _divide_cpu(cpu_devices)
  gpus = tf.config.list_logical_devices("GPU")
  devices = gpus or tf.config.list_logical_devices("CPU")
  if name == "mirrored" or (name == "auto" and len(devices) > 1):
    return tf.distribute.MirroredStrategy([device.name for device in devices])
  return tf.distribute.get_strategy()


def _divide_cpu(count: int) -> None:
  cpu = tf.config.list_physical_devices("CPU")[0]
  part = tf.config.LogicalDeviceConfiguration()
  try:
    tf.config.set_logical_device_configuration(cpu, [part] * count)
  except RuntimeError as error:
    raise UserError(
      f"--cpu_devices={count} comes too late: TensorFlow has already been "
      f"started in this process with another number of devices."
    ) from error
