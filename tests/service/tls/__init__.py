"""Tests of `deadlined.service.tls`."""
