"""The admin listener: health, metrics, connections and the drain of a service over HTTP.

`address` binds it, `hosting` runs it, `handler` answers. Import them from there: this package loads msgspec and
prometheus-client, which a service without the listener does not need.
"""
