# The image of the daemon and its command line. Its database is elsewhere: there is no PostgreSQL in it.
#   docker build -t tenured .
#   docker run --rm -e TENURE_DATABASE_URL=postgres://... tenured migrate up
#   docker run --rm -e TENURE_DATABASE_URL=postgres://... -p 127.0.0.1:8470:8470 -p 127.0.0.1:8471:8471 tenured serve --allow-unauthenticated
# cmake/check-dockerfile.sh checks the package names, and the list of libraries against the binaries.
FROM debian:bookworm AS build
WORKDIR /src
COPY cmake/install-deps.sh cmake/
RUN cmake/install-deps.sh && rm -rf /var/lib/apt/lists/*
COPY . .
# A file that includes gRPC takes about 1 GB to compile: give fewer jobs where memory is short.
ARG JOBS
RUN cmake --preset release \
 && cmake --build --preset release -j "${JOBS:-$(nproc)}" --target tenured tenurectl \
 && strip build/release/bin/tenured build/release/bin/tenurectl

FROM debian:bookworm-slim
# What the binaries link to, plus certificates (TLS to PostgreSQL and to targets) and time zones (schedules).
ARG RUNTIME_PACKAGES="ca-certificates tzdata \
  libgrpc++1.51 libprotobuf32 libabsl20220623 libpq5 libprometheus-cpp-core1.0 libspdlog1.10 libfmt9 \
  libcurl4 libssl3 zlib1g"
RUN apt-get update -q \
 && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends ${RUNTIME_PACKAGES} \
 && rm -rf /var/lib/apt/lists/* \
 && groupadd --gid 65532 tenure \
 && useradd --uid 65532 --gid 65532 --home-dir /nonexistent --no-create-home --shell /usr/sbin/nologin tenure
COPY --from=build /src/build/release/bin/tenured /src/build/release/bin/tenurectl /usr/local/bin/
COPY LICENSE /usr/share/doc/tenure/LICENSE
# Loopback is no use in a container. Beyond it the daemon asks for authentication or for --allow-unauthenticated.
ENV TENURE_GRPC_LISTEN=0.0.0.0:8470 TENURE_HTTP_LISTEN=0.0.0.0:8471
EXPOSE 8470 8471
# By number: Kubernetes' runAsNonRoot cannot tell from a name.
USER 65532:65532
STOPSIGNAL SIGTERM
ENTRYPOINT ["tenured"]
CMD ["serve"]
