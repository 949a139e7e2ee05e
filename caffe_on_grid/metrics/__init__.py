"""What a job says of itself and how it is shown."""
