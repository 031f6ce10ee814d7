"""Tests of the load test and its benchmarks."""
