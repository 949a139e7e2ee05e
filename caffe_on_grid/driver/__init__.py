"""What runs in Spark's driver: the stage, the reports, the outcome."""
