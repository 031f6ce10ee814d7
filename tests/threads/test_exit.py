"""The end of the interpreter and forks, each in a process of its own."""

from __future__ import annotations

import pytest

from tests.support.threads import python

HEAD = """
import atexit, os, sys, threading, time
from deadlined.threads import TimerThread
timers = TimerThread()
called = threading.Event()
def say(*words): print(*words, flush=True)
"""


def output(program: str, *options: str) -> list[str]:
    result = python(HEAD + program, *options)
    assert (result.stderr, result.returncode) == ("", 0)
    return result.stdout.splitlines()


def test_pending_timers_do_not_keep_the_program_from_its_end_and_are_dropped() -> None:
    assert output("timers.after_func(3600, say, 'dropped')\nsay('end')") == ["end"]


def test_timers_fire_while_threads_that_are_no_daemons_go_on_after_the_end_of_the_program() -> None:
    program = """
def work():
    threading.main_thread().join()
    called.wait()
    say("called")
timers.after_func(3600, print)
threading.Thread(target=work).start()
def start():
    threading.main_thread().join()
    timers.after_func(0.01, called.set)
threading.Thread(target=start).start()
"""
    assert output(program) == ["called"]


def test_a_call_that_runs_is_waited_for() -> None:
    program = """
def slow():
    called.set()
    threading.Event().wait(0.05)
    say("whole")
timers.after_func(0, slow)
called.wait()
"""
    assert output(program) == ["whole"]


def test_a_timer_started_by_an_exit_handler_after_the_end_of_all_timers_is_an_error() -> None:
    program = """
from deadlined.threads.process import at_exit
@atexit.register
def too_early():
    timers.after_func(3600, print)
    at_exit()
    for start in (lambda: timers.after_func(0, print), lambda: TimerThread().after_func(0, print)):
        try:
            start()
        except RuntimeError as error:
            say(error)
timers.after_func(3600, print)
"""
    assert output(program) == [
        "the TimerThread is closed",
        "the interpreter is exiting: no timers can be started any more",
    ]


def test_an_exit_handler_that_was_registered_before_the_import_finds_all_timers_closed() -> None:
    program = """
import atexit
def late():
    try:
        timers.after_func(0, print)
    except RuntimeError as error:
        print(error)
atexit.register(late)
from deadlined.threads import TimerThread
timers = TimerThread()
timers.after_func(3600, print)
"""
    result = python(program)
    assert (result.stderr, result.stdout) == ("", "the TimerThread is closed\n")


def test_an_exit_handler_may_use_timers_whose_thread_runs() -> None:
    program = """
@atexit.register
def handler():
    timers.after_func(0, called.set)
    called.wait()
    say("called")
timers.after_func(3600, print)
"""
    assert output(program) == ["called"]


def test_a_function_that_starts_timers_all_the_time_does_not_keep_the_program_from_its_end() -> None:
    program = """
def again():
    called.set()
    timers.after_func(0, again)
import logging
logging.disable()
again()
called.wait()
say("end")
"""
    assert output(program) == ["end"]


def test_an_unclosed_timer_thread_that_nobody_refers_to_still_fires() -> None:
    program = """
TimerThread().after_func(0.01, called.set)
import gc
gc.collect()
called.wait()
say("called")
"""
    assert output(program) == ["called"]


FORK = """
def child(work):
    pid = os.fork()
    if pid == 0:
        try:
            work()
            sys.stdout.flush()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0, "the child failed"
"""
# Python 3.12 warns of every fork of a process with threads
MANY_THREADS = ("-W", "ignore:This process:DeprecationWarning")


def forked(program: str) -> list[str]:
    return output(FORK + program, *MANY_THREADS)


def test_a_child_inherits_no_pending_timer_and_starts_its_own_thread() -> None:
    program = """
pending = timers.after_func(0.05, say, "called")
idle = timers.after_func(3600, say, "reset")
idle.stop()
def work():
    say(pending.pending, pending.stop(), timers.statistics().stored, timers.statistics().buckets[0].state)
    timers.after_func(0, called.set)
    called.wait()
    say(threading.active_count())
    say(pending.reset(3600), pending.reset(3600), pending.stop())
    done = threading.Event()
    idle.reset(0)
    timers.after_func(0, done.set)
    done.wait()
    timers.close()
child(work)
timers.after_func(0.06, called.set)
called.wait()
"""
    assert forked(program) == ["False False 0 not started", "2", "False True True", "reset", "called"]


def test_a_fork_in_the_middle_of_it_leaves_no_lock_held_in_the_child() -> None:
    program = """
sys.setswitchinterval(1e-6)
stop = threading.Event()
def work():
    while not stop.is_set():
        timers.after_func(1e-5, int)
        timers.after_func(3600, int).stop()
        TimerThread()
threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads: thread.start()
def use():
    done = threading.Event()
    timers.after_func(0, done.set)
    TimerThread()
    assert done.wait(30)
    timers.close()
for _ in range(20): child(use)
stop.set()
for thread in threads: thread.join()
say("end")
"""
    assert forked(program) == ["end"]


def test_a_closed_timer_thread_is_closed_in_the_child_too() -> None:
    program = """
timers.after_func(3600, print)
timers.close()
def work():
    try:
        timers.after_func(0, print)
    except RuntimeError as error:
        say(error)
child(work)
"""
    assert forked(program) == ["the TimerThread is closed"]


@pytest.mark.parametrize("buckets", [1, 8])
def test_a_function_that_forks_finds_the_timers_of_its_child_usable(buckets: int) -> None:
    program = f"""
timers = TimerThread({buckets})
def work():
    done = threading.Event()
    timers.after_func(0, done.set)
    assert done.wait(30)
    say("child")
def fork():
    child(work)
    called.set()
timers.after_func(0, fork)
called.wait()
timers.close()
say("parent")
"""
    assert forked(program) == ["child", "parent"]
