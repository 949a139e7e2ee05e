"""What runs in each barrier task: placement, MPI's launch, the watch over the ranks."""
