"""Codes to bit-strings: Bit-Swap, the range coder, and chains."""
