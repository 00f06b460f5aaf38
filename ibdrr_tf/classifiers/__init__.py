"""Networks that look at an image and name its class."""
