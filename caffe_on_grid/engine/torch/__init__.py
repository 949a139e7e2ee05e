"""The torch engine: Caffe's nets, solvers and files on PyTorch."""
