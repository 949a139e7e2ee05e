"""The driver with agents that pretend, as spark-submit starts it."""

from __future__ import annotations

import sys

import driver_agents

from caffe_on_grid.driver.main import main

sys.exit(main(agent=driver_agents.run))
