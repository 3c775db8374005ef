# One image for both binaries, of nothing but them and the roots of TLS:
#
#   docker build -t notifyq --build-arg VERSION=$(git describe --tags --always --dirty) .
#   docker run --rm notifyq /notifyq-worker -help
#
# It is built by BuildKit, the default of Docker 23 and later. -dev is not for the image: it holds no PostgreSQL.

ARG GO_VERSION=1.26

FROM --platform=$BUILDPLATFORM golang:${GO_VERSION}-trixie AS build
WORKDIR /src
COPY . .
ARG VERSION=devel
ARG TARGETOS
ARG TARGETARCH
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -buildvcs=false \
    -ldflags="-s -w -X github.com/notifyq/notifyq/cmd/internal/app.version=$VERSION" \
    -o /out/ ./cmd/notifyq-api ./cmd/notifyq-worker

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/ /
ARG VERSION=devel
LABEL org.opencontainers.image.title="notifyq" \
      org.opencontainers.image.description="A notification queue on PostgreSQL: notifyq-api and notifyq-worker" \
      org.opencontainers.image.source="https://github.com/notifyq/notifyq" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION"

# Loopback would be the container's own. The API listens there only with API_KEYS, and says so without.
ENV HOST=0.0.0.0
EXPOSE 3000

# Numeric, so that Kubernetes can tell that it is not root.
USER 65532:65532

# Give it WORKER_SHUTDOWN_TIMEOUT_MS and 5 s more: docker stop -t 20, for the default.
STOPSIGNAL SIGTERM

# It goes by HOST and PORT, so it does for both binaries. /livez and not /readyz: a process whose database is away waits for
# it, and would gain nothing by a restart.
HEALTHCHECK --interval=10s --timeout=4s --start-period=5s --retries=3 CMD ["/notifyq-api", "healthcheck", "/livez"]

# Exec form: the binary itself gets the signal.
CMD ["/notifyq-api"]
