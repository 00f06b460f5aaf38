"""Images to codes: the VQ-VAE, its codebooks, and its file."""
