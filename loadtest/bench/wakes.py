"""Lone wakes: what a tick costs a program that sleeps between two of them, beside the event loop's own sleep.

Facts      A program that sleeps has its code and data in no cache when it wakes. So a tick costs several times what it
           costs among others.
Hazard     Two processes differ by how their memory happens to lie, and the first wakes load code.
Answer     Many processes, in turns, each warmed up by some hundred ticks. The figure is the CPU time of the process.
Cost       Three seconds for each.

What one connection costs that sends one message at a time is the case "1 connection" of `echo`.
"""

from __future__ import annotations

from .programs import Programs

BENCHMARK = Programs("wakes")
