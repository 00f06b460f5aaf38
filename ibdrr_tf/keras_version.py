"""Makes sure that `tf.keras` is Keras 2, for which this package is written."""

import tensorflow as tf

from ibdrr_tf.errors import UserError

__all__ = ["check"]


def check() -> None:
  """Refuses to share a process with a `tf.keras` that is Keras 3.

  TensorFlow decides when `tf.keras` is first used, and does not decide again.

  Raises:
    UserError: if `tf.keras` was Keras 3 before `ibdrr_tf` was imported.
  """
  # The one of TensorFlow 2.14 has no version, and is Keras 2.
  version = getattr(tf.keras, "__version__", "2")
  if version.partition(".")[0] != "2":
    raise UserError(
      f"tf.keras is Keras {version} already, and ibdrr_tf needs Keras 2: "
      f"import ibdrr_tf before tf.keras is used, or set the environment "
      f"variable TF_USE_LEGACY_KERAS=1."
    )
