"""Images, their classes, and the order in which both arrive."""
