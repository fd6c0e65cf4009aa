# The image holds one static binary and the authorities that TLS trusts. The same
# commit and VERSION give the same binary.
#
#     docker build --build-arg VERSION=$(git describe --tags --always) -t stager .
FROM --platform=$BUILDPLATFORM golang:1.26.8 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY backends/ backends/
COPY cmd/ cmd/
COPY stager/ stager/
COPY window/ window/
ARG TARGETOS TARGETARCH VERSION=dev
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=$VERSION" -o /root-fs/stager ./cmd/stager
# Folders that the user may write to where nothing is mounted.
RUN mkdir -p /root-fs/run/stager /root-fs/tmp && \
    install -D -m 0644 /etc/ssl/certs/ca-certificates.crt /root-fs/etc/ssl/certs/ca-certificates.crt && \
    chown -R 65532:65532 /root-fs/run/stager /root-fs/tmp

FROM scratch
COPY --from=build /root-fs/ /
USER 65532:65532
ENTRYPOINT ["/stager"]
