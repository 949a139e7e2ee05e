"""Where the driver listens: settings of Spark's say."""

from __future__ import annotations

import socket

import pytest
from pyspark import SparkConf

from caffe_on_grid.driver.stage import PORT, listen
from caffe_on_grid.errors import ConfigError, EnvironmentFault

KEY = b"k" * 32


def conf(**settings: str) -> SparkConf:
    made = SparkConf(loadDefaults=False).set("spark.driver.host", "localhost")
    return made.setAll([(f"spark.{name.replace('_', '.')}", value) for name, value in settings.items()])


def test_any_port_if_none_is_set() -> None:
    ear = listen(conf(driver_bindAddress="127.0.0.1"), KEY)
    assert ear.address[0] == "localhost" and ear.address[1] > 0
    ear.close()


def test_from_the_port_that_is_set_as_many_as_spark_would_try() -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        taken = busy.getsockname()[1]
        settings = {"caffeOnGrid_driver_port": str(taken), "driver_bindAddress": "127.0.0.1"}
        ear = listen(conf(**settings), KEY)
        assert taken < ear.address[1] <= taken + 16
        ear.close()
        with pytest.raises(EnvironmentFault, match=f"at port {taken}: Address already in use"):
            listen(conf(**settings, port_maxRetries="0"), KEY)


@pytest.mark.parametrize("port", ["http", "-1", "65536", "1.5"])
def test_what_is_no_port_is_refused(port: str) -> None:
    with pytest.raises(ConfigError, match=f"{PORT}={port}: expected a port"):
        listen(conf(caffeOnGrid_driver_port=port), KEY)
