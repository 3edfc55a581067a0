# Drydock's server. Built in stages: the page, the Python environment, and a small image with both.
#
#   docker build -t drydock/server .
#
# It listens on all addresses of its container, and asks for a token that it makes on first start (see the log).
# Nothing in here needs BuildKit. The base images can be named by digest (see scripts/base-image).
ARG DEBIAN_IMAGE=debian:bookworm-slim
ARG NODE_IMAGE=node:20-bookworm-slim

# --- the page ---
FROM ${NODE_IMAGE} AS page
# Another package registry can be named for the build: --build-arg NPM_CONFIG_REGISTRY=…
ARG NPM_CONFIG_REGISTRY
WORKDIR /page
COPY frontend_stub/package.json frontend_stub/package-lock.json frontend_stub/.npmrc ./
RUN npm ci --no-audit --no-fund
COPY frontend_stub/ ./
# Who clones or pulls with a strict umask has files that nobody else may read; the server is another user in its image.
RUN npm run build && chmod -R a+rX dist

# --- what the last two stages share ---
FROM ${DEBIAN_IMAGE} AS base
RUN apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends ca-certificates git python3 \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/log/*.log /var/log/apt/*

# --- the Python environment ---
FROM base AS python
ARG PIP_INDEX_URL
RUN apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends python3-venv \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /opt/drydock
COPY requirements.lock requirements-postgresql.lock requirements-kubernetes.lock requirements-redis.lock ./
RUN python3 -m venv venv \
 && venv/bin/pip install --no-cache-dir --disable-pip-version-check --quiet \
      --require-hashes --only-binary :all: -r requirements.lock -r requirements-postgresql.lock \
      -r requirements-kubernetes.lock -r requirements-redis.lock
COPY pyproject.toml ./
COPY agent_core agent_core
COPY drydock_client drydock_client
COPY server server
COPY migrations migrations
COPY runtime_images runtime_images
# What messages point to: `drydock docs`, and the pages of error codes.
COPY docs docs
COPY deploy/healthcheck.py ./
RUN chmod -R a+rX pyproject.toml healthcheck.py agent_core drydock_client server migrations runtime_images docs \
 && venv/bin/pip install --no-cache-dir --disable-pip-version-check --quiet \
      --no-deps --no-build-isolation --no-index --editable . \
 && venv/bin/python -m compileall -q agent_core server migrations runtime_images \
 && venv/bin/pip uninstall --yes --quiet setuptools pip \
 && rm -rf build drydock.egg-info

# --- the server ---
FROM base
RUN groupadd --gid 10001 drydock \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /data --shell /usr/sbin/nologin drydock \
 && install -d -o drydock -g drydock -m 0700 /data
COPY --from=python /opt/drydock /opt/drydock
COPY --from=page /page/dist /opt/drydock/frontend_stub/dist

ENV PATH=/opt/drydock/venv/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONUNBUFFERED=1 \
    LITELLM_LOCAL_MODEL_COST_MAP=True \
    DRYDOCK_HOST=0.0.0.0 \
    DRYDOCK_PORT=3000 \
    DRYDOCK_DATA_DIR=/data \
    DRYDOCK_TOKEN=auto
USER drydock
WORKDIR /data
VOLUME /data
EXPOSE 3000
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
  CMD ["/usr/bin/python3", "-I", "-S", "/opt/drydock/healthcheck.py"]
CMD ["drydock", "serve"]
