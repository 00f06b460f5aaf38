"""Images to bit-strings and back."""
