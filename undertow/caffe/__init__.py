"""Caffe: its file formats, nets and solvers."""
