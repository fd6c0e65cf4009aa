package image

// applets are the commands of busybox that the trainer, and tests' shells, use.
var applets = []string{
	"cat", "cp", "cut", "dd", "find", "grep", "head", "ls", "mkdir", "mktemp", "mv", "printf", "rm", "seq", "sha256sum", "sleep", "sort", "tee",
	"touch", "tr", "wc", "yes",
}

// Trainer is the image of images/trainer: busybox as its shell, stager for next, ack
// and commit, and the trainer.
func Trainer(name, arch string, busybox, stager, trainer []byte) Image {
	files := []File{
		{Path: "bin/sh", Mode: 0o755, Body: busybox},
		{Path: "bin/stager", Mode: 0o755, Body: stager},
		{Path: "bin/trainer", Mode: 0o755, Body: trainer},
		{Path: "tmp/", Mode: 0o777},
	}
	for _, a := range applets {
		files = append(files, File{Path: "bin/" + a, Link: "sh"})
	}
	return Image{Name: name, Arch: arch, Files: files}
}
