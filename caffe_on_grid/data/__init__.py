"""Records in a fixed order, transformed as Caffe does, ahead of time."""
