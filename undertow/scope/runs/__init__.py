"""Trainings in the browser: runs are recorded into folders, served while they go on, and opened later.

A run's folder holds `run.jsonl` (see `records`). `writer` writes it, `darknet` and `caffe` tell it what a training
does, `reader` reads it, `server` shows it.
"""
