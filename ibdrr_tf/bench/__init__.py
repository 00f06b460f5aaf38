"""Side-by-side measurements: `python -m ibdrr_tf.bench`."""
