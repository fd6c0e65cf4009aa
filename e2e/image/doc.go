// Package image writes container images without a container engine and without a
// registry: an [Image] is a list of files and what runs, and [Image.Write] makes it an
// OCI archive, which containerd, podman, skopeo and Docker from version 25 load.
//
// [Release] is the image of stager that is given out. The same binary gives the same
// digest, whoever writes it and whenever.
package image
