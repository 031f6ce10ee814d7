"""What a service serves: an application, the server's own page, or upstreams."""
