# The image holds one static binary and the authorities that TLS trusts. The same
# commit and VERSION give the same files; "make image" makes an image of them without
# Docker.
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
    go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=$VERSION" -o stager.bin ./cmd/stager
COPY e2e/ e2e/
RUN go run -C e2e ./cmd/mkimage -tree /root-fs /src/stager.bin

FROM scratch
COPY --from=build /root-fs/ /
USER 65532:65532
ENTRYPOINT ["/stager"]
