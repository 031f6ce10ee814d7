"""`python -m loadtest check URL`: when, how and by which rule a server cuts slow clients, and a grade for it.

The modules from the bottom up: `loop` and `probe` are connections and when they end; `scripts` says what each attack
sends; `kinds` reads a deadline off what was seen; `attacker` runs all that in a process of its own; `attacks`, `grade`
and `advice` judge; `run` is the whole; `shown`, `page` and `junit` are its outputs; `command` is the command.
"""
