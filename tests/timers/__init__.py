"""Tests of `deadlined.timers`."""
