package main

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/stager-dev/stager/backends/all"
	"github.com/stager-dev/stager/stager/jobspec"
)

type fanoutCmd struct {
	shape
	imaging
	copying
	Workers       int               `help:"Number of pods that copy." required:"" placeholder:"N"`
	Include       []string          `help:"Only objects that match, such as *.tar or train/**/*.jpg. Repeatable." placeholder:"GLOB" sep:"none"`
	Exclude       []string          `help:"Skip objects that match. Repeatable." placeholder:"GLOB" sep:"none"`
	JobName       string            `help:"Name of the Job." default:"stager-copy"`
	Namespace     string            `help:"Namespace of the Job." placeholder:"NAME"`
	Secret        string            `help:"Secret with credential files, for SRC or both sides." placeholder:"NAME"`
	DstSecret     string            `help:"Secret with credential files for DST, if different." placeholder:"NAME"`
	SecretKeys    []string          `help:"Keys of --secret and the names of the credentials that they are. Default: all, under their own names." placeholder:"KEY:NAME,..."`
	DstSecretKeys []string          `help:"The same for --dst-secret." placeholder:"KEY:NAME,..."`
	Claim         map[string]string `help:"PersistentVolumeClaim and its mount path, for file:// URLs. Repeatable." placeholder:"NAME=/PATH" mapsep:"none"`
	User          int64             `help:"User and group ID of the pods." default:"65532"`
}

// Help returns the detailed help.
func (fanoutCmd) Help() string {
	return `Its first lines show how to apply it and how to check the result. The pods run "stager copy --shard"; a second Job runs "stager copy --verify".

    stager fanout s3://datasets/imagenet/ nfs://efs.example/imagenet/ --workers 8 --secret s3-read >job.yaml
    stager fanout hdfs://nn:8020/logs/ file:///mnt/logs/ --workers 4 --claim results=/mnt`
}

func (f fanoutCmd) Run(log *slog.Logger) error {
	for _, location := range []string{f.Src, f.Dst} {
		if !strings.Contains(location, "://") {
			return &usageError{fmt.Errorf("%q is a different directory in each pod: use a URL such as file:///mnt/data/ with --claim NAME=/mnt", location)}
		}
		if err := all.Registry().Check(location); err != nil {
			return err
		}
	}
	if err := all.Registry().CheckDestination(f.Dst); err != nil {
		return err
	}
	if overlap(f.Src, f.Dst) {
		return &usageError{errors.New("SRC and DST contain each other, so the copy would never end")}
	}
	if wrong := validation.IsDNS1123Label(f.JobName + "-verify"); len(wrong) > 0 {
		return &usageError{fmt.Errorf("--job-name %q: %s", f.JobName, wrong[0])}
	}
	if _, err := (choosing{Include: f.Include, Exclude: f.Exclude}).listing(); err != nil {
		return err
	}
	var flags []string
	for _, p := range f.Include {
		flags = append(flags, "--include="+p)
	}
	for _, p := range f.Exclude {
		flags = append(flags, "--exclude="+p)
	}
	if f.Overwrite {
		flags = append(flags, "--overwrite")
	}
	out, err := jobspec.Fanout(jobspec.FanoutOptions{
		Name: f.JobName, Namespace: f.Namespace, Source: f.Src, Destination: f.Dst, Workers: f.Workers, Flags: flags,
		Image: f.reference(), ImagePullPolicy: f.ImagePullPolicy, Env: f.ContainerEnv,
		Secret: f.Secret, DestinationSecret: f.DstSecret, SecretKeys: f.SecretKeys, DestinationSecretKeys: f.DstSecretKeys, Claims: f.Claim, User: f.User,
	})
	if err != nil {
		return &usageError{err}
	}
	if f.reference() == "" {
		warnNoImage(log)
	}
	return f.documents(out)
}
