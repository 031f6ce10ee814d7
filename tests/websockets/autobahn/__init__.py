"""The cases of the Autobahn test suite as a table, and how one is run.

The suite (github.com/crossbario/autobahn-testsuite) is the measure of websocket implementations, and its own client
runs on Python 2 only. Here are its cases for servers, under its numbers: what the client sends, byte for byte, and what
an echo server must answer. Sections 9, 12 and 13 have smaller messages, or fewer. The suite accepts that a server which
fails a connection does so without a close frame; here the close code is required.
"""
