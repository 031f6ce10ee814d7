"""Ports on which nothing listens yet."""

from __future__ import annotations

import socket

import pytest

from deadlined.service.listening.free_port import free_port


def test_a_free_port_is_one_of_that_host() -> None:
    with socket.create_server(("127.0.0.2", 0)) as other:
        port = other.getsockname()[1]
        assert free_port("127.0.0.1", port) == port
        for host in ("127.0.0.2", ""):
            with pytest.raises(OSError, match="in use"):
                free_port(host, port)


def test_a_port_that_the_kernel_chooses_is_free_on_that_host() -> None:
    port = free_port("127.0.0.1", 0)
    with socket.create_server(("127.0.0.1", port)):
        assert port > 0


def test_a_host_of_another_machine_has_no_free_port() -> None:
    with pytest.raises(OSError, match="assign"):
        free_port("192.0.2.1", 0)
