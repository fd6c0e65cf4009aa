package nfs3

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/stager-dev/stager/backends/nfs/internal/remote"
	"github.com/stager-dev/stager/backends/nfs/internal/rpc"
)

const (
	mountProgram  = 100005
	mapperProgram = 100000
)

// ErrFlavor reports that an export requires a credential other than AUTH_SYS.
var ErrFlavor = errors.New("the export requires Kerberos, which is not supported")

// MountPort returns the port of the mount service, from the port mapper of the server.
func MountPort(ctx context.Context, mapper *rpc.Client) (int, error) {
	msg := rpc.NewCall(rpc.Credential{}, mapperProgram, 2, 3, 0)
	for _, v := range []uint32{mountProgram, version, 6, 0} { // over TCP
		msg.Uint32(v)
	}
	r, err := mapper.Call(ctx, msg)
	if err != nil {
		return 0, fmt.Errorf("the server's port mapper did not return the port of the mount service (set ?mountport=): %w", err)
	}
	defer r.Release()
	port := int(r.Uint32())
	if r.Err() != nil {
		return 0, remote.Malformed(r.Err())
	}
	if port == 0 || port > 65535 {
		return 0, errors.New("the server's port mapper has no mount service of version 3")
	}
	return port, nil
}

// Exports returns all directories that the mount service exports, to any client.
func Exports(ctx context.Context, service *rpc.Client, cred rpc.Credential) (directories []string, err error) {
	r, err := service.Call(ctx, rpc.NewCall(cred, mountProgram, version, 5, 0))
	if err != nil {
		return nil, err
	}
	defer r.Release()
	for r.Uint32() != 0 {
		directories = append(directories, string(r.Opaque(1024)))
		for r.Uint32() != 0 {
			r.Opaque(1024) // a permitted group
		}
	}
	return directories, remote.Malformed(r.Err())
}

// Mount returns the handle of a directory from the mount service.
func Mount(ctx context.Context, service *rpc.Client, cred rpc.Credential, directory string) (Handle, error) {
	msg := rpc.NewCall(cred, mountProgram, version, 1, 0)
	msg.String(directory)
	r, err := service.Call(ctx, msg)
	if err != nil {
		return "", err
	}
	defer r.Release()
	if status := remote.Status(r.Uint32()); status != remote.OK {
		return "", &remote.Error{Status: status, Op: "MNT"}
	}
	h := Handle(r.Opaque(maxHandle))
	var flavors []uint32
	for range min(r.Uint32(), 64) {
		flavors = append(flavors, r.Uint32())
	}
	if r.Err() != nil {
		return "", remote.Malformed(r.Err())
	}
	if len(flavors) > 0 && !slices.Contains(flavors, 0) && !slices.Contains(flavors, 1) {
		return "", ErrFlavor
	}
	return h, nil
}
