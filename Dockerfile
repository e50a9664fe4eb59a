# The broker, as a small image: docker run -p 127.0.0.1:8081:8081 -p 127.0.0.1:8082:8082 -p 127.0.0.1:8083:8083 -v popmq:/data popmq
# Without 127.0.0.1 every program that reaches the machine may call it: first add access keys and TLS (docs/security.md).
# tests/release/test_packaging.py runs the make targets of these lines, so a change that breaks this file fails a test.

# The full image has make. Its Python has the same path as that of the slim image, so the environment can be copied.
FROM python:3.13 AS build
WORKDIR /src
COPY . .
RUN make install PREFIX=/opt/popmq EXTRA=server
# An empty folder, to be copied with an owner.
WORKDIR /data

FROM python:3.13-slim
COPY --from=build /opt/popmq /opt/popmq
# A new volume takes over this owner. Not every builder gives a WORKDIR to USER: Docker without BuildKit leaves it to root.
COPY --from=build --chown=10001:10001 /data /data
ENV PATH=/opt/popmq/bin:$PATH PYTHONUNBUFFERED=1
# All addresses of the container: the command that starts it decides which ports are published, and where.
ENV POPMQ_DATA=/data POPMQ_HOST=0.0.0.0 POPMQ_METRICS_HOST=0.0.0.0
# Not root.
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 8081 8082 8083 9464
# In the shell, since a start of Python every few seconds costs more than an idle broker. It needs no access key.
HEALTHCHECK --interval=10s --timeout=10s --start-period=60s CMD ["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/${POPMQ_METRICS_PORT:-9464} && printf 'GET /readyz HTTP/1.0\\r\\n\\r\\n' >&3 && grep -q '^HTTP/1.. 200' <&3"]
# SIGTERM drains the broker: running calls get up to 5 s.
STOPSIGNAL SIGTERM
CMD ["popmq", "serve"]
