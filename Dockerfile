# Holdfast as an image. For your own tasks: FROM this image, then COPY your modules to /app (see docs/deploy.md).

FROM ghcr.io/astral-sh/uv:0.13.7 AS uv

FROM python:3.13-slim-bookworm AS build
COPY --from=uv /uv /usr/local/bin/uv
WORKDIR /source
COPY requirements/dev.txt requirements/dev.txt
COPY pyproject.toml README.md LICENSE ./
COPY src src
COPY examples examples
# The pins are constraints here: the image gets the versions the tests ran with, their hashes are checked, and what
# only developers need stays out.
RUN uv build --wheel --build-constraints requirements/dev.txt --require-hashes --out-dir /wheels . \
    && uv venv --python /usr/local/bin/python3 /opt/holdfast \
    && uv pip install --no-cache --compile-bytecode --python /opt/holdfast/bin/python \
        --constraints requirements/dev.txt "$(ls /wheels/holdfast-*.whl)[redis]"

FROM python:3.13-slim-bookworm
RUN useradd --system --uid 10001 --user-group --create-home --home-dir /var/lib/holdfast holdfast \
    && mkdir /app \
    && chown holdfast:holdfast /app
COPY --from=build /opt/holdfast /opt/holdfast
ENV PATH=/opt/holdfast/bin:$PATH \
    PYTHONUNBUFFERED=1
WORKDIR /app
# By number, so that Kubernetes can see that it is not root (runAsNonRoot).
USER 10001:10001
STOPSIGNAL SIGTERM
# No HEALTHCHECK: commands like `holdfast verify` have no port, and orchestrators probe a worker's /healthz themselves.
# Exec form: holdfast is PID 1 and gets the signals; a shell in between would swallow them.
ENTRYPOINT ["holdfast"]
CMD ["--help"]
