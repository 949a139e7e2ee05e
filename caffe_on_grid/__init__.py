"""Distributed Caffe training on the GPU nodes of a Hadoop cluster."""

__version__ = "0.1.0"
