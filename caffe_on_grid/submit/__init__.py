"""From a job to a running spark-submit: the command as a value, the archives, the process."""
