"""Go's rules for deadlines of descriptors, one by one, on a poller whose clock and kernel the test plays.

The numbers are those of our reading of Go's netpoll.go and fd_unix.go:

    1.3  setting a deadline     test_set_deadline.py     1.4  a timer fires       test_fire.py
    1.5  reset, wait and ready  test_waiting.py          1.6  close and reuse     test_close.py

The rules of the read and write layer (1.7) are in tests/poll/test_read_write_layer.py.

Go joins the timers of both directions while their deadlines are equal ("combo"). Here each half keeps its own timer, so
of the rules about joining what is tested is their effect. Nor are there locks: where Go collects goroutines under a
lock and makes them runnable after it, the poller calls `wake`, which only notes them down.
"""
