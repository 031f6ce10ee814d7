# deadlined in a container: docker build -t deadlined . && docker run --read-only -p 8000:8000 deadlined
#
# It serves a page about itself. examples/docker/ puts an application on top, docs/deployment.md says how to run it.

FROM python:3.13-slim AS build
WORKDIR /build
# hadolint ignore=DL3008  # nothing of this stage but the package is kept; what compiles it is Debian's
RUN apt-get update \
 && apt-get install --yes --no-install-recommends gcc libc6-dev \
 && rm -rf /var/lib/apt/lists/*
# 0 compiles in a third of the time, and runs slower
ARG DEADLINED_OPT_LEVEL=3
# an image that is not compiled is not built
ENV DEADLINED_REQUIRE_COMPILED=1
COPY pyproject.toml setup.py README.md LICENSE ./
COPY deadlined/ deadlined/
# hadolint ignore=DL3013  # it is what was copied; its dependencies are the newest that it allows
RUN python -m pip install --no-cache-dir --root-user-action=ignore --no-warn-script-location --root /install '.[fast]'

FROM python:3.13-slim
LABEL org.opencontainers.image.title="deadlined" \
      org.opencontainers.image.description="An ASGI server in which every wait of every connection ends on time" \
      org.opencontainers.image.licenses="MIT"
COPY --from=build /install/ /

# Variables, so that the command of a derived image names its application only. The admin listener is the container's
# own: its probe needs neither the application nor a file that can be written.
ENV PYTHONUNBUFFERED=1 \
    DEADLINED_HOST=0.0.0.0 \
    DEADLINED_ADMIN=127.0.0.1:9000
WORKDIR /srv
# a number, so that an orchestrator that demands another user than root can see that this is one; it needs no name
USER 65532:65532
EXPOSE 8000
# drains; give the container 5 seconds more than the drain's 30 before it is killed
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["deadlined", "health"]
ENTRYPOINT ["deadlined"]
CMD ["serve"]
