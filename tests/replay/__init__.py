"""Replays recorded traces of the original programs and compares every array.

python -m tests.replay darknet|caffe FOLDER [--case NAME]
"""
