# PostgreSQL for the profile `cluster` of the compose file, with the secrets that its servers share. Build context: this folder.
ARG DEBIAN_IMAGE=debian:bookworm-slim
FROM ${DEBIAN_IMAGE}

# The package would make a cluster of its own, which nobody uses.
RUN apt-get update \
 && mkdir -p /etc/postgresql-common \
 && echo 'create_main_cluster = false' > /etc/postgresql-common/createcluster.conf \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends postgresql \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/log/*.log /var/log/apt/*

# The same user as that of the servers: what it writes for them, nobody else can read.
RUN groupadd --gid 10001 drydock \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /data --shell /usr/sbin/nologin drydock \
 && install -d -o drydock -g drydock -m 0700 /data /run/drydock

COPY start-postgresql /usr/local/bin/
USER drydock
WORKDIR /data
VOLUME /data /run/drydock
EXPOSE 5432
# It ends at once, instead of waiting until the last client has gone.
STOPSIGNAL SIGINT
HEALTHCHECK --interval=3s --timeout=5s --start-period=60s --retries=5 \
  CMD ["pg_isready", "--quiet", "--host=127.0.0.1", "--username=drydock"]
CMD ["start-postgresql"]
