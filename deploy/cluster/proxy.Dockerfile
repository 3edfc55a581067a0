# HAProxy before the servers of the profile `cluster` of the compose file. Build context: the folder above this one.
ARG DEBIAN_IMAGE=debian:bookworm-slim
FROM ${DEBIAN_IMAGE}

RUN apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends haproxy \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/log/*.log /var/log/apt/*

COPY haproxy/cluster.cfg /etc/haproxy/haproxy.cfg
USER haproxy
# It lets what is open go on for as long as the compose file gives it.
STOPSIGNAL SIGUSR1
HEALTHCHECK --interval=3s --timeout=5s --start-period=10s --retries=3 \
  CMD ["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/8404 && printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3 && grep -q ' 200 ' <&3"]
CMD ["haproxy", "-db", "-f", "/etc/haproxy/haproxy.cfg"]
