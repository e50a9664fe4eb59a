# The broker, as a small image: docker run -p 8081:8081 -p 8082:8082 -v popmq:/data popmq
# Every RUN is a make target, and tests/test_packaging.py runs these lines too, so that this file cannot rot unseen.

# The full image has make; its Python stands where that of the slim one does, so the environment can be copied.
FROM python:3.13 AS build
WORKDIR /src
COPY . .
RUN make install PREFIX=/opt/popmq EXTRA=server

FROM python:3.13-slim
COPY --from=build /opt/popmq /opt/popmq
ENV PATH=/opt/popmq/bin:$PATH PYTHONUNBUFFERED=1
# Not root. BuildKit makes the working folder this user's own, and a new volume takes over its owner.
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 8081 8082
# With access keys it calls by POPMQ_ACCESS_KEY and POPMQ_SECRET_FILE; any key will do.
HEALTHCHECK --interval=30s --timeout=10s --start-period=10s CMD ["popmq", "stats"]
# SIGTERM drains: what was promised is on disk, what is in flight is answered.
STOPSIGNAL SIGTERM
CMD ["popmq", "serve", "--data", "/data", "--host", "0.0.0.0", "--port", "8081"]
