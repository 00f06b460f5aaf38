"""What is remembered of old classes, in bytes, and how it is replayed."""
