# deadlined serve in a container: docker build -t deadlined . && docker run -p 8000:8000 deadlined
#
# Each stage keeps what it makes below its WORKDIR. `.ci/image` relies on that: it runs these very steps without a
# container engine.

FROM python:3.13-slim AS build
WORKDIR /srv/build
# the hot rooms become C, and an image without them is not built
RUN command -v gcc > /dev/null \
 || { apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev; }
ENV DEADLINED_REQUIRE_COMPILED=1
COPY pyproject.toml setup.py README.md LICENSE ./
COPY deadlined/ deadlined/
RUN python -m pip wheel --no-cache-dir --wheel-dir wheels '.[fast]'

FROM python:3.13-slim
LABEL org.opencontainers.image.title="deadlined" \
      org.opencontainers.image.description="An HTTP server in which every wait of every connection ends on time" \
      org.opencontainers.image.licenses="MIT"
WORKDIR /srv/deadlined
COPY --from=build /srv/build/wheels/ wheels/
RUN python -m venv venv \
 && venv/bin/pip install --no-cache-dir --no-index --find-links wheels 'deadlined[fast]' \
 && rm -r wheels
ENV PATH="/srv/deadlined/venv/bin:$PATH" \
    PYTHONUNBUFFERED=1

# no name in /etc/passwd is needed, and an orchestrator that demands a non-root user can see that this is one
USER 65532:65532
EXPOSE 8000
# TERM drains; give the container longer than the drain's 30 seconds before it is killed
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s CMD ["python", "-c", "import http.client as h; c = h.HTTPConnection('127.0.0.1', 8000, timeout=2); c.request('GET', '/'); raise SystemExit(c.getresponse().status >= 400)"]
ENTRYPOINT ["deadlined"]
CMD ["serve", "--host", "0.0.0.0"]
