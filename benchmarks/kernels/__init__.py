"""What the CPU kernels can do by themselves: whole training steps of a net laid out by hand, against PyTorch."""
