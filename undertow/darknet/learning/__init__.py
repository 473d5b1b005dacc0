"""Training a detector: samples, the loop, checkpoints, logs and charts."""
