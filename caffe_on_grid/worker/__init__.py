"""What runs in each rank: the one place where engine, data, synchroniser and communicator meet."""
