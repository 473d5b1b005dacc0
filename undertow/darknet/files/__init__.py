"""Darknet's files: cfg, weights, data lists, names and labels, and the shapes a cfg describes."""
